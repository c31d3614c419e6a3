"""Writing an answer: sampled, guided, the best of several, abstaining."""
