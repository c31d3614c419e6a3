"""Traces on disk."""
