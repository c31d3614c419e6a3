"""AARF: changing the model's own layers while it writes (ReDeEP)."""
