"""Measuring detectors: splits by source, thresholds from other data, intervals, controls, validation."""
