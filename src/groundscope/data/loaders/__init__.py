"""Readers of other projects' files, one module per format; :mod:`.registry` finds out which one a file needs."""
