"""Models beside the one that reads: sentence embeddings and classifiers of sentence pairs."""
