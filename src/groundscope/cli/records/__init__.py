"""Commands about data: convert, audit, label."""
