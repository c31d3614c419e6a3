"""A text token by token: sampled, guided by a detector, the best of several, with a log of what decided."""
