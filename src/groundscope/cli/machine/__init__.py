"""Commands about this machine: models in the cache, what is installed."""
