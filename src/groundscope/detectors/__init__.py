"""Detectors: rules and probes that turn traces into token scores."""
