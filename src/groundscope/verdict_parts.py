"""The parts of a verdict: tokens, spans, sentences, what explains them, where the lines are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from groundscope.errors import InputError, is_finite, is_share


@dataclass(frozen=True)
class TokenScore:
    """One response token. ``response[start:end] == text``; a higher score means less supported.

    The pieces of one character share its whole range: offsets never cut a character.

    Attributes:
        start: First code point.
        end: One past the last code point.
        text: ``response[start:end]``.
        score: The token's own score.
        stretch: Score of the stretch around it: what spans are cut out of, in the unit of ``threshold.span``.
            ``None`` where it is the score itself.
    """

    start: int
    end: int
    text: str
    score: float
    stretch: float | None = None

    @property
    def level(self) -> float:
        """What is compared with ``threshold.span``."""
        return self.score if self.stretch is None else self.stretch


@dataclass(frozen=True)
class Evidence:
    """Where the model looked while it read a span.

    Attributes:
        passage: 0-based index into the passages.
        weight: Share of the attention on all passages that went to this one, in [0, 1].
    """

    passage: int
    weight: float


@dataclass(frozen=True)
class Reason:
    """Why a sentence or span looks unsupported, or supported.

    Attributes:
        group: The group of signals that spoke, such as ``text``, ``attention``, ``contrast`` or ``surprise``.
        weight: What it added to the log-odds; above 0 it speaks for unsupported.
        text: In words, for people.
    """

    group: str
    weight: float
    text: str


@dataclass(frozen=True)
class Nearest:
    """The sentence of a passage to compare a sentence with; that it is near does not say that it supports.

    Attributes:
        passage: 0-based index into the passages.
        start: First code point in that passage.
        end: One past the last code point.
        overlap: How much of the response's sentence stands in it, in [0, 1].
    """

    passage: int
    start: int
    end: int
    overlap: float


@dataclass(frozen=True)
class Span:
    """An unsupported stretch of the response, snapped to words. ``response[start:end] == text``.

    Attributes:
        start: First code point.
        end: One past the last code point.
        text: ``response[start:end]``.
        score: Mean of its smoothed token scores, in the unit of ``threshold.span``.
        evidence: Where the model looked while it read the span.
        probability: That of the sentence it lies in, the highest if several.
        reasons: Those of the sentences it lies in, strongest first.
        nearest: That of the sentence it lies in.
    """

    start: int
    end: int
    text: str
    score: float
    evidence: tuple[Evidence, ...] = ()
    probability: float | None = None
    reasons: tuple[Reason, ...] = ()
    nearest: Nearest | None = None


@dataclass(frozen=True)
class SentenceScore:
    """One sentence of the response. ``response[start:end] == text``.

    Attributes:
        start: First code point.
        end: One past the last code point.
        text: ``response[start:end]``.
        score: Sentence score; ``None`` where no token of it could be scored.
        flagged: Whether ``score >= threshold.sentence``; without such a line, whether a span touches it.
        probability: Calibrated probability that it is not supported; ``None`` if the detector gives none.
        reasons: What spoke for and against it, strongest first.
        nearest: The passage sentence to compare it with.
    """

    start: int
    end: int
    text: str
    score: float | None
    flagged: bool
    probability: float | None = None
    reasons: tuple[Reason, ...] = ()
    nearest: Nearest | None = None


@dataclass(frozen=True)
class Unscored:
    """A stretch of the response without a score, and why."""

    start: int
    end: int
    reason: str


@dataclass(frozen=True)
class Threshold:
    """Where the line is drawn.

    Attributes:
        response: The response is flagged when its score is at least this.
        span: A stretch is reported when its score (``TokenScore.stretch``) is at least this.
        source: Where the numbers come from, in words.
        sentence: A sentence is flagged when its score is at least this; ``None`` if sentences have no line of
            their own.
        response_probability: The calibrated probability at the line for responses, for people.
        sentence_probability: That at the line for sentences.
    """

    response: float
    span: float
    source: str
    sentence: float | None = None
    response_probability: float | None = None
    sentence_probability: float | None = None


def is_threshold(given: object) -> bool:
    """Whether this is a :class:`Threshold` with usable numbers."""
    return (
        isinstance(given, Threshold)
        and is_finite(given.response)
        and is_finite(given.span)
        and isinstance(given.source, str)
        and (given.sentence is None or is_finite(given.sentence))
        and all(item is None or is_share(item) for item in (given.response_probability, given.sentence_probability))
    )


def check_stretches(kind: str, item_type: type[Any], items: Any, response: str) -> None:
    """Check that stretches of one kind lie in the response and carry usable scores.

    Raises:
        InputError: If one is not.
    """
    if not isinstance(items, tuple):
        raise InputError(f"A verdict keeps every {kind} in a tuple. Got {type(items).__name__} instead.")
    length = len(response)
    for item in items:
        if not isinstance(item, item_type):
            raise InputError(f"Every {kind} of a verdict must be a {item_type.__name__}. Got {item!r} instead.")
        start, end = item.start, item.end
        inside = type(start) is int and type(end) is int and 0 <= start <= end <= length
        if not inside or (item_type is not Unscored and item.text != response[start:end]):
            raise InputError(
                f"The {kind} {start}-{end} lies outside the response of {length} code points, or its text is not "
                f"response[{start}:{end}]. Got {item!r}; offsets must satisfy 0 <= start <= end <= {length}."
            )
        if item_type is Unscored:
            continue
        # A sentence may have no score, and a token no stretch of its own.
        optional = item.score if item_type is SentenceScore else getattr(item, "stretch", None)
        if not (optional is None or is_finite(optional)) or not (item_type is SentenceScore or is_finite(item.score)):
            raise InputError(f"The score of every {kind} must be a finite number. Got {item!r} instead.")


def check_evidence(span: Span, passages: int) -> None:
    """Check that a span's evidence names passages that exist.

    Raises:
        InputError: If one is not.
    """
    for item in span.evidence:
        whole = isinstance(item, Evidence) and type(item.passage) is int and is_finite(item.weight)
        # A verdict written without its context has evidence and no passages.
        if not whole or item.passage < 0 or (passages and item.passage >= passages):
            raise InputError(
                f"Evidence must name a passage by its number from 0, below {passages or 'their count'}, and hold a "
                f"finite weight. Got {item!r} instead."
            )


def check_explanation(item: Span | SentenceScore, passages: tuple[str, ...]) -> None:
    """Check that probability, reasons and nearest sentence are usable.

    Raises:
        InputError: If one is not.
    """
    if item.probability is not None and not is_share(item.probability):
        raise InputError(f"A probability must be a number in [0, 1] or None. Got {item!r} instead.")
    if not isinstance(item.reasons, tuple) or not all(is_reason(reason) for reason in item.reasons):
        raise InputError(f"Reasons need a group, a finite weight and a text. Got {item.reasons!r} instead.")
    # A verdict written without its context has nearest sentences and no passages.
    if item.nearest is not None and not is_nearest(item.nearest, passages or None):
        raise InputError(f"The nearest sentence must lie in one of the passages. Got {item.nearest!r} instead.")


def is_reason(given: object) -> bool:
    """Whether this is a :class:`Reason` with usable parts."""
    return (
        isinstance(given, Reason)
        and isinstance(given.group, str)
        and isinstance(given.text, str)
        and is_finite(given.weight)
    )


def is_nearest(given: object, passages: Sequence[str] | None) -> bool:
    """Whether this is a :class:`Nearest` that lies in the passages; ``None`` where these are not known."""
    return (
        isinstance(given, Nearest)
        and all(type(number) is int for number in (given.passage, given.start, given.end))
        and given.passage >= 0
        and 0 <= given.start <= given.end
        and is_share(given.overlap)
        and (passages is None or (given.passage < len(passages) and given.end <= len(passages[given.passage])))
    )
