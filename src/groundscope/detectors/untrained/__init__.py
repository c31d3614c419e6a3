"""Detectors that need no labelled examples."""
