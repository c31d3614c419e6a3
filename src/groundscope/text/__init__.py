"""Text as people read it: sentences, words and highlighted spans, all in code-point offsets."""
