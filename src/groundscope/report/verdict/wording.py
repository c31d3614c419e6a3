"""The words and numbers in which a verdict is told, the same in every kind of report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from groundscope.verdict import Span, Verdict

Kind = Literal["flagged", "clean", "open"]

_NOT_SCORED = {
    "no_answer": "Not scored: no answer",
    "no_context": "Not scored: no context",
    "too_long": "Not scored: too long",
    "failed": "Not scored: failed",
}


@dataclass(frozen=True)
class Headline:
    """A verdict in one line.

    Attributes:
        kind: ``flagged``, ``clean`` (all was scored and nothing was flagged) or ``open`` (nobody can say).
        text: The line.
    """

    kind: Kind
    text: str


def headline(verdict: Verdict) -> Headline:
    """Sum a verdict up. What was not scored, or not fully, is never called clean."""
    if verdict.outcome in _NOT_SCORED:
        return Headline("open", _NOT_SCORED[verdict.outcome])
    partly = verdict.outcome == "partial"
    if verdict.flagged:
        return Headline("flagged", "Flagged, partly scored" if partly else "Flagged")
    if partly:
        return Headline("open", "Partly scored, not flagged")
    if verdict.flagged is None:
        return Headline("open", "Scored, no threshold")
    return Headline("clean", "Not flagged")


def comparison(verdict: Verdict) -> str:
    """Return the response score beside its threshold."""
    if verdict.score is None:
        return "no score"
    if verdict.threshold is None:
        return f"score {number(verdict.score)}"
    sign = ">=" if verdict.score >= verdict.threshold.response else "<"
    return f"score {number(verdict.score)} {sign} threshold {number(verdict.threshold.response)}"


def span_score(span: Span, verdict: Verdict) -> str:
    """Return a span's score; beside it, why the span is there although it lies below the line."""
    if verdict.threshold is None or span.score >= verdict.threshold.span:
        return f"score {number(span.score)}"
    return (
        f"score {number(span.score)} (the highest sentence of a flagged answer; no stretch of it reaches "
        f"{number(verdict.threshold.span)})"
    )


def number(value: float) -> str:
    """Format a score: three significant digits."""
    return f"{value:.3g}"


def percent(share: float) -> str:
    """Format a share in [0, 1]."""
    return f"{100 * share:.0f} %"


def excerpt(text: str, limit: int) -> str:
    """Put a text on one line and cut it to at most ``limit`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3].rstrip() + "..."
