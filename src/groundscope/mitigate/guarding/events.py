"""What a guard says about a stream."""

from __future__ import annotations

from dataclasses import dataclass

from groundscope.verdict import Verdict


@dataclass(frozen=True)
class Released:
    """Text to be shown.

    Attributes:
        text: The text.
        start: Its first code point in the whole.
        end: One past its last.
        score: Score of its sentence; ``None`` where it claims nothing, and in mode ``audit``, which shows first.
    """

    text: str
    start: int
    end: int
    score: float | None


@dataclass(frozen=True)
class Scored:
    """Mode ``audit``: what is thought of a sentence that has been shown.

    Attributes:
        start: Its first code point in the whole.
        end: One past its last.
        score: Its score; ``None`` if it has no token.
        flagged: Whether the score is not below the threshold, or is missing.
    """

    start: int
    end: int
    score: float | None
    flagged: bool


@dataclass(frozen=True)
class Withheld:
    """Mode ``withhold``: a sentence that is not shown. Attributes as in :class:`Scored`."""

    start: int
    end: int
    score: float | None


@dataclass(frozen=True)
class Stopped:
    """Mode ``stop``: the end, before a flagged sentence.

    Attributes:
        reason: Why, in words, without the text.
        start: The sentence's first code point in the whole.
        score: Its score; ``None`` if it has no token.
    """

    reason: str
    start: int
    score: float | None


@dataclass(frozen=True)
class Finished:
    """The end of the stream.

    Attributes:
        verdict: The verdict on the whole text; withheld characters are replaced by blocks.
    """

    verdict: Verdict


Event = Released | Scored | Withheld | Stopped | Finished
