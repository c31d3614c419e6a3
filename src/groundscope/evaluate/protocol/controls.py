"""Controls: what is known without looking at whether the context supports the answer.

A method that does not beat them has shown nothing. All are measured exactly like a detector.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from groundscope.evaluate.metrics.binary import Floats
from groundscope.evaluate.protocol.scoring import Candidate, ExampleScore, Scorer
from groundscope.example import Example
from groundscope.learn.labels import response_label
from groundscope.text.controls import response_words, word_novelty, words_of
from groundscope.text.spans import smooth
from groundscope.text.words import word_spans
from groundscope.trace.traced import Traced, TracedExample

# As wide as the detectors' default.
_STRETCH = 16


class RateControl(Candidate):
    """Knows only one field of the record, such as the task: how often answers of that kind went wrong in training.

    The score is the rank of the kind's rate among all kinds, from 0 to 1, not the rate: a rate that leaves the
    held-out answers out is lowest where they went wrong most, which would spoil the comparison within a kind.
    A kind that training does not hold gets the middle. Every token gets the score of its answer.

    Args:
        name: Of its row.
        field: Reads the kind from a record.
    """

    kind = "control"
    fitting = "cross-fitted"

    def __init__(self, name: str, field: Callable[[Example], str | None]) -> None:
        self.name = name
        self.field = field

    def fitted(self, train: Traced, dev: Traced) -> Scorer:
        """Rank the kinds on both parts; it chooses nothing on dev."""
        outcomes: dict[str, list[bool]] = defaultdict(list)
        for item in (*train, *dev):
            outcomes[self.field(item.example) or ""].append(response_label(item.example))
        rates = {kind: float(np.mean(values)) for kind, values in outcomes.items()}
        order = sorted(set(rates.values()))
        ranks = {kind: order.index(rate) / max(1, len(order) - 1) for kind, rate in rates.items()}

        def score(item: TracedExample) -> ExampleScore:
            return _constant(item, ranks.get(self.field(item.example) or "", 0.5))

        return score


class LengthControl(Candidate):
    """Number of words of the response; of a token, its position: later ones go wrong more often."""

    kind = "control"
    fitting = "untrained"
    name = "response length"

    def fitted(self, train: Traced, dev: Traced) -> Scorer:
        """Return the scorer; it learns nothing."""

        def score(item: TracedExample) -> ExampleScore:
            position = np.arange(1, item.trace.tokens + 1, dtype=np.float64)
            return ExampleScore(position, position, float(response_words(item.example)))

        return score


class NoveltyControl(Candidate):
    """Share of the response's words that stand in neither passages nor question; of a token, whether its word does."""

    kind = "control"
    fitting = "untrained"
    name = "word novelty"

    def fitted(self, train: Traced, dev: Traced) -> Scorer:
        """Return the scorer; it learns nothing."""

        def score(item: TracedExample) -> ExampleScore:
            tokens = token_novelty(item)
            return ExampleScore(tokens, smooth(tokens, _STRETCH), word_novelty(item.example))

        return score


def token_novelty(item: TracedExample) -> Floats:
    """Return 1 for tokens that overlap a word which stands in neither passages nor question, else 0; (token,)."""
    example, offsets = item.example, item.trace.layout.response_offsets
    found = np.zeros(item.trace.tokens)
    if offsets is None:
        return found
    known = {word for text in (example.question, *example.passages) for word in words_of(text)}
    ranges = np.asarray(offsets).reshape(-1, 2)
    for start, end in word_spans(example.response):
        if any(word not in known for word in words_of(example.response[start:end])):
            found[(ranges[:, 0] < end) & (start < ranges[:, 1])] = 1.0
    return found


def controls(data: Traced) -> list[Candidate]:
    """Return the controls for examples: task, writer if there are several, length, word novelty."""
    found: list[Candidate] = [RateControl("task only", lambda example: example.task)]
    if len({item.example.model for item in data}) > 1:
        found.append(RateControl("writer only", lambda example: example.model))
    return [*found, LengthControl(), NoveltyControl()]


def _constant(item: TracedExample, value: float) -> ExampleScore:
    tokens = np.full(item.trace.tokens, value)
    return ExampleScore(tokens, tokens, value)
