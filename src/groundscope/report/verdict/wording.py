"""The words and numbers in which a verdict is told, the same in every kind of report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from groundscope.verdict import Reason, SentenceScore, Span, Verdict

Kind = Literal["flagged", "unflagged", "open"]

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
        kind: ``flagged``, ``unflagged`` (scored, and below the line; no proof of support) or ``open`` (nobody can say).
        text: The line.
    """

    kind: Kind
    text: str


def headline(verdict: Verdict) -> Headline:
    """Sum a verdict up. What was not scored, or not fully, is never called unflagged."""
    if verdict.outcome in _NOT_SCORED:
        return Headline("open", _NOT_SCORED[verdict.outcome])
    partly = verdict.outcome == "partial"
    if verdict.flagged:
        return Headline("flagged", "Flagged, partly scored" if partly else "Flagged")
    if partly:
        return Headline("open", "Partly scored, not flagged")
    if verdict.flagged is None:
        return Headline("open", "Scored, no threshold")
    return Headline("unflagged", "Not flagged")


def comparison(verdict: Verdict) -> str:
    """Return the response's probability, or else its score, beside where it is flagged."""
    if verdict.score is None:
        return "no score"
    if verdict.probability is not None:
        said = f"unsupported with probability {probability(verdict.probability)}"
        return f"{said}, {line}" if (line := response_line(verdict)) else said
    if verdict.threshold is None:
        return f"score {number(verdict.score)}"
    sign = ">=" if verdict.score >= verdict.threshold.response else "<"
    return f"score {number(verdict.score)} {sign} threshold {number(verdict.threshold.response)}"


def response_line(verdict: Verdict) -> str:
    """Say from which probability a response is flagged; empty if that is not known."""
    line = None if verdict.threshold is None else verdict.threshold.response_probability
    if line is None or verdict.probability is None:
        return ""
    if verdict.flagged is False and verdict.probability >= line:
        # Isotonic probabilities have steps: scores on both sides of the line may share one.
        return "just below where it is flagged"
    return f"flagged from {probability(line)}"


def explanation(reasons: Sequence[Reason], flagged: bool, most: int | None = None) -> list[Reason]:
    """Return the reasons that speak for what was decided, strongest first.

    Args:
        reasons: All.
        flagged: What was decided.
        most: How many at most.
    """
    speaking = [reason for reason in reasons if (reason.weight > 0 if flagged else reason.weight < 0)]
    return sorted(speaking, key=lambda reason: -abs(reason.weight))[:most]


def sentence_score(sentence: SentenceScore) -> str:
    """Return a sentence's probability, or else its score."""
    if sentence.probability is not None:
        return probability(sentence.probability)
    return "none" if sentence.score is None else number(sentence.score)


def span_score(span: Span, verdict: Verdict) -> str:
    """Return a span's probability or score; beside it, why the span is there although it lies below the line."""
    if span.probability is not None:
        said = f"probability {probability(span.probability)}"
        if verdict.threshold is not None and span.score < verdict.threshold.span:
            return f"{said} (the whole sentence: no stretch of it stands out)"
        if not any(item.flagged for item in verdict.sentences if item.start < span.end and span.start < item.end):
            return f"{said} (that of its sentence, which is not flagged; the stretch stands out)"
        return said
    if verdict.threshold is None or span.score >= verdict.threshold.span:
        return f"score {number(span.score)}"
    return (
        f"score {number(span.score)} (the highest sentence of a flagged answer; no stretch of it reaches "
        f"{number(verdict.threshold.span)})"
    )


def number(value: float) -> str:
    """Format a score: three significant digits."""
    return f"{value:.3g}"


def probability(value: float) -> str:
    """Format a probability: two digits, never as certain as 0 or 1."""
    if value < 0.005:
        return "<0.01"
    return ">0.99" if value >= 0.995 else f"{value:.2f}"


def percent(share: float) -> str:
    """Format a share in [0, 1]."""
    return f"{100 * share:.0f} %"


def excerpt(text: str, limit: int) -> str:
    """Put a text on one line and cut it to at most ``limit`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3].rstrip() + "..."
