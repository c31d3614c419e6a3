"""Readers that yield Examples, and the writer of verdicts."""
