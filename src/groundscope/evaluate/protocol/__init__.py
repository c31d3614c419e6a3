"""Who is fitted, chosen and measured on what: splits, folds, thresholds, conditions, controls."""
