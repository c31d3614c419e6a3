"""What a detector with a sentence model says of a response: its sentences, the whole, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from groundscope.errors import InputError, is_finite, is_share
from groundscope.verdict_parts import Nearest, Reason, is_nearest, is_reason

__all__ = ["Judgement", "Nearest", "Reason", "SentenceJudgement", "check_judgement", "merge_judgements"]

# Larger scores could no longer be compared and joined.
_LARGEST = 1e300
Whole = Callable[[Sequence["SentenceJudgement"]], tuple[float, float]]


@dataclass(frozen=True)
class SentenceJudgement:
    """One sentence of the response.

    Attributes:
        start: First code point in the response.
        end: One past the last.
        score: Raw score in log-odds, higher = less supported; what ``threshold.sentence`` is compared with.
        probability: Calibrated probability that the sentence is not supported.
        reasons: What spoke for and against it, strongest first.
        nearest: The passage sentence to compare it with, counted in the passages of the trace that was judged
            (``layout.passage_texts``).
    """

    start: int
    end: int
    score: float
    probability: float
    reasons: tuple[Reason, ...] = ()
    nearest: Nearest | None = None


@dataclass(frozen=True)
class Judgement:
    """A response as a sentence model sees it.

    Attributes:
        sentences: In order, disjoint; together they hold every character that is not white space.
        score: Raw response score in log-odds; what ``threshold.response`` is compared with.
        probability: Calibrated probability that the response is not supported.
    """

    sentences: tuple[SentenceJudgement, ...]
    score: float
    probability: float


def check_judgement(given: object, response: str, passages: Sequence[str]) -> Judgement:
    """Return a judgement, refusing what is none of this response.

    Args:
        given: What a detector returned.
        response: The response.
        passages: The passages of the trace that it judged.

    Raises:
        InputError: If a score, probability, range or reason in it is not what it must be.
    """
    if not isinstance(given, Judgement) or not isinstance(given.sentences, tuple):
        raise InputError(f"a Judgement with a tuple of sentences is expected, got {given!r}")
    _check_numbers("the response", given)
    end = 0
    for item in given.sentences:
        if not isinstance(item, SentenceJudgement):
            raise InputError(f"a SentenceJudgement is expected, got {item!r}")
        where = f"sentence {item.start!r}-{item.end!r}"
        if type(item.start) is not int or type(item.end) is not int or not end <= item.start < item.end:
            raise InputError(f"sentences must follow one another, got {where} where the last one ends at {end}")
        if item.end > len(response) or response[end : item.start].strip():
            raise InputError(f"sentences must hold all of the response and no more, got {where} after {end}")
        _check_numbers(where, item)
        if not isinstance(item.reasons, tuple) or not all(map(is_reason, item.reasons)):
            raise InputError(f"reasons need a group, a finite weight and a text, got {item.reasons!r} for {where}")
        if item.nearest is not None and not is_nearest(item.nearest, passages):
            raise InputError(f"the nearest sentence must lie in a passage, got {item.nearest!r} for {where}")
        end = item.end
    if response[end:].strip():
        raise InputError(f"sentences must hold all of the response, got none from {end} on")
    return given


def merge_judgements(judgements: Sequence[Judgement], whole: Whole) -> Judgement:
    """Join what was said of one response under several prompts, each with a part of the passages.

    A sentence that is supported in any prompt counts as supported: of each, the judgement with the lowest score
    stays. The response is judged anew from the sentences that stay. Taking the prompt that scores the response
    lowest would flag every answer that draws on passages of two prompts.

    Args:
        judgements: One per prompt, of the same sentences.
        whole: Score and probability of a response from its sentences.

    Raises:
        InputError: If they judge different sentences.
    """
    first = judgements[0]
    if len(judgements) == 1:
        return first
    ranges = [[(item.start, item.end) for item in judgement.sentences] for judgement in judgements]
    if any(other != ranges[0] for other in ranges[1:]):
        raise InputError("the prompts' judgements must be of the same sentences")
    columns = zip(*(judgement.sentences for judgement in judgements), strict=True)
    kept = tuple(min(column, key=lambda item: item.score) for column in columns)
    score, probability = whole(kept)
    merged = Judgement(kept, score, probability)
    _check_numbers("the response", merged)
    return merged


def _check_numbers(where: str, item: Judgement | SentenceJudgement) -> None:
    if not is_finite(item.score) or abs(item.score) >= _LARGEST or not is_share(item.probability):
        raise InputError(
            f"a finite score and a probability in [0, 1] are expected, "
            f"got {item.score!r} and {item.probability!r} for {where}"
        )
