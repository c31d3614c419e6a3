"""Whether a signal measures what it is said to measure (LUMINA, section 5)."""
