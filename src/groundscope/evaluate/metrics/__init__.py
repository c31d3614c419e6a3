"""Numbers from arrays of labels and scores; knows nothing else of this package's science."""
