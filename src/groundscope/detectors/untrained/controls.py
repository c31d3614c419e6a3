"""Controls: trivial detectors that read the words alone. What does not beat them has found nothing."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from groundscope.detectors.untrained.gathered import GatheredDetector, per_token
from groundscope.text.words import word_spans

if TYPE_CHECKING:
    from groundscope.example import Example
    from groundscope.lm.language_model import LanguageModel
    from groundscope.lm.prompt.layout import Layout
    from groundscope.trace.trace import FloatArray


class Length(GatheredDetector):
    """Number of words in the response, for each of its tokens: longer answers go wrong more often."""

    name = "length"
    summary = "number of words in the response (control)"
    reference = "control: response length"
    aggregation = "the same for all tokens"
    level: ClassVar[Literal["token", "response"]] = "response"

    @property
    def own_signal(self) -> str:
        """Name of the array that it gathers."""
        return "response_words"

    def gather(self, lm: LanguageModel, example: Example, layout: Layout) -> Mapping[str, FloatArray]:
        """Count the words."""
        count = sum(_is_word(word) for word in words_of(example.response))
        return {self.own_signal: np.full(layout.response_length, count, dtype=np.float32)}


class Novelty(GatheredDetector):
    """1 for tokens of words that stand in neither passages nor question, 0 for all others.

    Words are compared without case, in compatibility form; marks are never new.
    """

    name = "novelty"
    summary = "share of words that stand in neither passages nor question (control)"
    reference = "control: word novelty"

    @property
    def own_signal(self) -> str:
        """Name of the array that it gathers."""
        return "word_novelty"

    def gather(self, lm: LanguageModel, example: Example, layout: Layout) -> Mapping[str, FloatArray]:
        """Look every word up."""
        known = {word for text in (example.question, *example.passages) for word in words_of(text)}
        own = words_of(example.response)
        new = [float(_is_word(word) and word not in known) for word in own]
        values = per_token(layout, word_spans(example.response), new)
        return {self.own_signal: np.nan_to_num(values, nan=0.0).astype(np.float32)}


def words_of(text: str) -> list[str]:
    """Return the units of :func:`word_spans` in the form in which they are compared."""
    return [
        unicodedata.normalize("NFKC", text[start:end]).replace("’", "'").casefold() for start, end in word_spans(text)
    ]


def _is_word(unit: str) -> bool:
    return any(char.isalnum() for char in unit)
