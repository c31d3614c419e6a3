"""From an example to the token ids that a model reads, and back from tokens to characters."""
