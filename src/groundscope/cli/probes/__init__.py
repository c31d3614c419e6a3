"""Commands about detectors: list, train, transfer, import."""
