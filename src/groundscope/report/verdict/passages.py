"""The passages cut at the sentences to compare with, so that these can be pointed at."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from groundscope.report.verdict.segments import character_borders
from groundscope.report.verdict.wording import excerpt
from groundscope.verdict import Nearest, Verdict


@dataclass(frozen=True)
class Piece:
    """A stretch of a passage.

    Attributes:
        text: The characters.
        opens: Numbers of the nearest sentences that begin here.
        inside: Numbers of those that hold it.
    """

    text: str
    opens: tuple[int, ...]
    inside: tuple[int, ...]


class NearestSentences:
    """The nearest sentences that a verdict names, each numbered once, and the passages cut at them."""

    def __init__(self, verdict: Verdict) -> None:
        self._passages = verdict.passages
        found = [item.nearest for item in verdict.sentences] + [item.nearest for item in verdict.spans]
        ranges = dict.fromkeys((near.passage, near.start, near.end) for near in found if near is not None)
        self._numbers = {place: number for number, place in enumerate(ranges)}

    def number(self, nearest: Nearest | None) -> int | None:
        """Return its number; ``None`` if there is none, or no passage to show it in."""
        if nearest is None or nearest.passage >= len(self._passages):
            return None
        return self._numbers[nearest.passage, nearest.start, nearest.end]

    def text(self, nearest: Nearest | None, limit: int = 160) -> str:
        """Return its text on one line, at most ``limit`` characters; empty if it is not known."""
        if nearest is None or nearest.passage >= len(self._passages):
            return ""
        return excerpt(self._passages[nearest.passage][nearest.start : nearest.end], limit)

    def pieces(self, passage: int) -> Iterator[Piece]:
        """Cut a passage; the pieces' texts joined are the passage."""
        text = self._passages[passage]
        floor, ceiling = character_borders(text)
        ranges = {
            number: (floor[start], ceiling[end])
            for (index, start, end), number in self._numbers.items()
            if index == passage
        }
        borders = sorted({0, len(text), *itertools.chain.from_iterable(ranges.values())})
        if not text:
            yield Piece("", tuple(ranges), ())
        # An empty range at the very end opens no piece of its own.
        for begin, stop in itertools.pairwise(borders):
            opens = tuple(
                number for number, (start, _) in ranges.items() if start == begin or (stop == len(text) == start)
            )
            inside = tuple(number for number, (start, end) in ranges.items() if start <= begin and stop <= end)
            yield Piece(text[begin:stop], opens, inside)
