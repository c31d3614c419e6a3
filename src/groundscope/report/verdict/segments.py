"""The response cut into stretches that are drawn alike."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from groundscope.errors import InputError
from groundscope.example import Label
from groundscope.text.words import clusters
from groundscope.verdict import TokenScore, Verdict


class _Range(Protocol):
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


@dataclass
class Segment:
    """A stretch of the response with everything that is known about it.

    Attributes:
        text: The characters.
        tokens: The scored tokens that overlap it.
        span: Index of the verdict's span that holds it.
        sentence: Index of the verdict's sentence that holds it.
        unscored: Why it has no score.
        labels: Types of the human labels over it; empty text for a label without a type.
    """

    text: str
    tokens: list[TokenScore] = field(default_factory=list)
    span: int | None = None
    sentence: int | None = None
    unscored: str | None = None
    labels: list[str] = field(default_factory=list)

    @property
    def score(self) -> float | None:
        """Mean over the tokens of what is compared with the span threshold; ``None`` without any."""
        scores = [token.level for token in self.tokens if math.isfinite(token.level)]
        return sum(scores) / len(scores) if scores else None


def cut_response(verdict: Verdict, labels: Sequence[Label] = ()) -> list[Segment]:
    """Cut the response wherever a token, span, sentence, unscored range or human label begins or ends.

    Cuts are moved outwards to whole characters as a reader sees them, so that neither an emoji nor a letter
    with its marks is taken apart.

    Returns:
        Segments in order; their texts joined are the response.

    Raises:
        InputError: If a range of the verdict or a label lies outside the response.
    """
    response = verdict.response
    floor, ceiling = character_borders(response)
    groups: list[tuple[str, Sequence[_Range]]] = [
        ("token", verdict.tokens),
        ("span", verdict.spans),
        ("sentence", verdict.sentences),
        ("unscored range", verdict.unscored),
        ("human label", labels),
    ]
    cuts = {0, len(response)}
    for name, ranges in groups:
        for item in ranges:
            if not 0 <= item.start <= item.end <= len(response):
                raise InputError(
                    f"The {name} {item.start}-{item.end} lies outside the response of {len(response)} code "
                    "points. Pass the verdict and the labels of the same, unchanged response."
                )
            cuts |= {floor[item.start], ceiling[item.end]}
    borders = sorted(cuts)
    segments = [Segment(response[start:end]) for start, end in itertools.pairwise(borders)]

    def under(item: _Range) -> list[Segment]:
        if item.start == item.end:
            return []
        first, last = bisect_left(borders, floor[item.start]), bisect_left(borders, ceiling[item.end])
        return segments[first:last]

    for token in verdict.tokens:
        for segment in under(token):
            segment.tokens.append(token)
    for index, span in enumerate(verdict.spans):
        for segment in under(span):
            segment.span = index
    for index, sentence in enumerate(verdict.sentences):
        for segment in under(sentence):
            segment.sentence = index
    for unscored in verdict.unscored:
        for segment in under(unscored):
            segment.unscored = unscored.reason
    for label in labels:
        for segment in under(label):
            segment.labels.append(label.type)
    return segments


def character_borders(text: str) -> tuple[list[int], list[int]]:
    """Return, per position, the nearest character border at or before it, and at or after it."""
    floor = list(range(len(text) + 1))
    ceiling = list(range(len(text) + 1))
    for start, end in clusters(text):
        for inside in range(start + 1, end):
            floor[inside], ceiling[inside] = start, end
    return floor, ceiling
