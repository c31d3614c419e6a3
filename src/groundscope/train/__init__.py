"""From labelled data to a saved detector: reading, fitting, choosing lines, model card, transfer."""
