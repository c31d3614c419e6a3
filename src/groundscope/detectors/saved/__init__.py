"""Detectors in folders: written, read back, imported from elsewhere. Nothing that could run."""
