"""Verdicts for people: coloured text for the terminal, a page for the browser."""
