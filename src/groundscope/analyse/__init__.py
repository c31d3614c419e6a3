"""What happens inside a model when it is faithful and when it is not: ReDeEP's and LUMINA's questions on any data."""
