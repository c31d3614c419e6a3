"""Learning: labels to tokens, windows, selectors, probes, calibration."""
