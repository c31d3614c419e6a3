"""Trivial predictors of hallucination that read nothing but the words: what every detector has to beat."""

from __future__ import annotations

import re

from groundscope.example import Example

_WORD = re.compile(r"\w+")


def response_words(example: Example) -> int:
    """Return how many words the response has; longer answers go wrong more often."""
    return len(words_of(example.response))


def word_novelty(example: Example) -> float:
    """Return the share of response words that stand in neither the passages nor the question.

    Case is ignored. A response without words has novelty 0.

    Returns:
        A number from 0 to 1.
    """
    known = {word for text in (example.question, *example.passages) for word in words_of(text)}
    own = words_of(example.response)
    return sum(word not in known for word in own) / max(1, len(own))


def words_of(text: str) -> list[str]:
    """Cut a text into runs of letters, digits and underscores, in lower case."""
    return [word.lower() for word in _WORD.findall(text)]
