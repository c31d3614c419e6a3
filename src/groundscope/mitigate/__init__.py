"""Writing under control: generation whose signals are known token by token, and what is built on it."""
