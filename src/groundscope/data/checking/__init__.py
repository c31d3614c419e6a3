"""What can be wrong with data."""
