"""Guarding a text that streams."""
