"""From a detector's judgement to a verdict's sentences, and to spans that are explained by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from groundscope.detectors.judgement import Judgement, SentenceJudgement
from groundscope.lm.prompt.layout import Layout
from groundscope.verdict_parts import Nearest, SentenceScore, Span, Threshold

Found = list[tuple[int, int, float]]
MeansOf = Callable[[Sequence[tuple[int, int]]], list[float | None]]


def in_passages(judgement: Judgement, layout: Layout, passages: Sequence[str]) -> Judgement:
    """Move nearest sentences from the passages of one prompt, which may be pieces, to those of the example.

    Args:
        judgement: Of a response under one prompt.
        layout: That prompt's.
        passages: The example's.
    """

    def moved(nearest: Nearest | None) -> Nearest | None:
        if nearest is None:
            return None
        number = layout.passage_numbers[nearest.passage]
        if not layout.passage_texts:
            return replace(nearest, passage=number)
        shift = passages[number].find(layout.passage_texts[nearest.passage])
        if shift < 0:
            return None
        return replace(nearest, passage=number, start=nearest.start + shift, end=nearest.end + shift)

    return replace(
        judgement, sentences=tuple(replace(item, nearest=moved(item.nearest)) for item in judgement.sentences)
    )


def judged_spans(found: Found, judgement: Judgement, threshold: Threshold, means_of: MeansOf) -> Found:
    """Return the spans of a judged response, in order.

    A flagged sentence in which no stretch stands out is marked as a whole. So is the highest sentence of a flagged
    response in which nothing else is marked.

    Args:
        found: Stretches that reach the span threshold.
        judgement: Of the response.
        threshold: The lines.
        means_of: Mean span score of ranges; ``None`` where there is no token.
    """
    ranges = [(item.start, item.end) for item in judgement.sentences]
    scored = [
        (item, mean) for item, mean in zip(judgement.sentences, means_of(ranges), strict=True) if mean is not None
    ]
    bare = [
        (item.start, item.end, mean)
        for item, mean in scored
        if _reaches(item, threshold) and not any(start < item.end and item.start < end for start, end, _ in found)
    ]
    if judgement.score >= threshold.response and scored and not found and not bare:
        item, mean = max(scored, key=lambda pair: pair[0].score)
        bare = [(item.start, item.end, mean)]
    return sorted([*found, *bare])


def explained(spans: Sequence[Span], judgement: Judgement) -> tuple[Span, ...]:
    """Return spans with the reasons, probability and nearest sentence of the sentences they lie in."""
    return tuple(_explained(span, judgement.sentences) for span in spans)


def _explained(span: Span, sentences: Sequence[SentenceJudgement]) -> Span:
    over = [item for item in sentences if item.start < span.end and span.start < item.end]
    if not over:
        return span
    worst = max(over, key=lambda item: item.score)
    reasons = dict.fromkeys(reason for item in (worst, *over) for reason in item.reasons)
    return replace(
        span,
        probability=float(max(item.probability for item in over)),
        reasons=tuple(sorted(reasons, key=lambda reason: -abs(reason.weight))),
        nearest=worst.nearest,
    )


def judged_sentences(
    response: str, judgement: Judgement, threshold: Threshold, spans: Sequence[Span]
) -> tuple[SentenceScore, ...]:
    """Return a verdict's sentences; without a line for them, those that a span touches are flagged."""
    return tuple(
        SentenceScore(
            item.start,
            item.end,
            response[item.start : item.end],
            float(item.score),
            any(span.start < item.end and item.start < span.end for span in spans)
            if threshold.sentence is None
            else _reaches(item, threshold),
            float(item.probability),
            item.reasons,
            item.nearest,
        )
        for item in judgement.sentences
    )


def _reaches(item: SentenceJudgement, threshold: Threshold) -> bool:
    return threshold.sentence is not None and bool(item.score >= threshold.sentence)
