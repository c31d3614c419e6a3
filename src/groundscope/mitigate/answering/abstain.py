"""Abstaining: an answer above the threshold is replaced by a refusal, or loses the sentences that are not supported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from groundscope.errors import InputError, check_choice, is_finite
from groundscope.verdict import SentenceScore, Verdict

AbstainMode = Literal["refuse", "remove"]
REFUSAL = "I cannot answer this from the given passages."
# What was not checked cannot be vouched for. What claims nothing needs no check.
_UNCHECKED = ("failed", "too_long", "no_context")


@dataclass(frozen=True)
class Removed:
    """A stretch of the answer as written that is not shown.

    Attributes:
        start: First code point in the answer as written.
        end: One past the last.
        text: What stood there.
        score: Its score; ``None`` where there is none.
    """

    start: int
    end: int
    text: str
    score: float | None


@dataclass(frozen=True)
class Abstention:
    """What is shown in place of an answer.

    Attributes:
        text: What to show.
        action: ``kept``, ``refused`` or ``removed``.
        removed: What of the answer as written is not shown.
        reason: Why, in words; empty if it was kept.
    """

    text: str
    action: str
    removed: tuple[Removed, ...] = ()
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return asdict(self) | {"removed": [asdict(item) for item in self.removed]}


def abstain(
    verdict: Verdict, mode: AbstainMode = "refuse", *, threshold: float | None = None, refusal: str = REFUSAL
) -> Abstention:
    """Return what to show for an answer.

    An answer is replaced when its score is at least the threshold, and also when it could not be checked (outcome
    ``failed``, ``too_long`` or ``no_context``). One that claims nothing (``no_answer``) is kept.

    Args:
        verdict: Of the answer.
        mode: ``refuse`` shows the refusal; ``remove`` shows the answer without the sentences that hold an
            unsupported span, or the refusal if nothing is left or nothing was checked.
        threshold: The line; by default the verdict's own.
        refusal: The text of a refusal.

    Raises:
        InputError: If a parameter is not usable.
    """
    check_choice("abstain", "mode", mode, get_args(AbstainMode))
    if not isinstance(refusal, str):
        raise InputError(f"The 'refusal' parameter of abstain must be a string. Got {refusal!r} instead.")
    if threshold is not None and not is_finite(threshold):
        raise InputError(f"The 'threshold' parameter of abstain must be a finite number. Got {threshold!r} instead.")
    if verdict.score is None:
        if verdict.outcome not in _UNCHECKED:
            return Abstention(verdict.response, "kept")
        return _refused(verdict, refusal, f"The answer could not be checked: {verdict.message}")
    above = verdict.flagged if threshold is None else verdict.score >= threshold
    if not above:
        return Abstention(verdict.response, "kept")
    line = threshold if threshold is not None or verdict.threshold is None else verdict.threshold.response
    reason = f"The score {verdict.score:.4g} is at least {line:.4g}." if line is not None else "The answer is flagged."
    unsupported = [item for item in verdict.sentences if item.flagged]
    if mode == "refuse" or not unsupported:
        return _refused(verdict, refusal, reason)
    text = _without(verdict.response, verdict.sentences)
    if not text:
        return _refused(verdict, refusal, f"{reason} No sentence is supported.")
    removed = tuple(Removed(item.start, item.end, item.text, item.score) for item in unsupported)
    return Abstention(text, "removed", removed, reason)


def _refused(verdict: Verdict, refusal: str, reason: str) -> Abstention:
    whole = Removed(0, len(verdict.response), verdict.response, verdict.score)
    return Abstention(refusal, "refused", (whole,) if verdict.response else (), reason)


def _without(response: str, sentences: Sequence[SentenceScore]) -> str:
    """The response without its flagged sentences, each with the white space after it."""
    ends = [*(item.start for item in sentences[1:]), len(response)]
    kept = [response[item.start : end] for item, end in zip(sentences, ends, strict=True) if not item.flagged]
    return "".join(kept).strip()
