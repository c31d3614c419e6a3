"""Verdicts for people: the terminal, one HTML page."""
