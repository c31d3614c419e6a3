"""The trace engine: signals out of one pass."""
