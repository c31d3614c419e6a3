"""What was found, as plain records, and what must not be overlooked in them."""
