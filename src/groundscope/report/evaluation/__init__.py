"""Evaluations for people: tables, plots, pages."""
