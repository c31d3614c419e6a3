"""The ``groundscope`` command: one file per subcommand, nothing heavy imported before it is needed."""
