"""Signals while a text grows, step by step."""
