"""The model that reads: loading, layouts, anatomy, attention."""
