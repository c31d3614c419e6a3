"""Detectors that learn from labelled examples: one file a method, and what they share."""
