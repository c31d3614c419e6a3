"""An answer from question and passages: written by a chosen strategy, checked, and abstained from if asked to."""
