"""From token scores to a verdict: aggregation, spans, sentences, evidence, what could not be scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from groundscope.detectors.base import Detector, Scores, describe
from groundscope.detectors.judgement import Judgement, check_judgement, merge_judgements
from groundscope.errors import GroundscopeError, InputError, is_finite
from groundscope.example import Example
from groundscope.judged_sentences import explained, in_passages, judged_sentences, judged_spans
from groundscope.lm.prompt.layout import Layout
from groundscope.lm.prompt.offsets import uncovered
from groundscope.text.sentences import split_sentences
from groundscope.text.spans import aggregate_units, find_spans, smooth
from groundscope.trace.trace import Trace
from groundscope.verdict import (
    Evidence,
    Outcome,
    SentenceScore,
    Span,
    Threshold,
    TokenScore,
    Unscored,
    Verdict,
)

_MAX_EVIDENCE = 3
# Larger scores could no longer be averaged.
_LARGEST = 1e300


class _DetectorError(GroundscopeError):
    """A detector raised, or returned what is no score."""


@dataclass(frozen=True)
class Assembler:
    """Builds verdicts for one detector and model.

    Attributes:
        detector: The detector.
        model: Name of the model that reads.
    """

    detector: Detector
    model: str

    def unscored(self, example: Example, outcome: Outcome, message: str) -> Verdict:
        """Return a verdict without a score; it is never flagged and never clean."""
        stretch = (Unscored(0, len(example.response), message),) if example.response else ()
        return Verdict(
            outcome=outcome,
            response=example.response,
            score=None,
            flagged=None,
            aggregation=self.detector.aggregation,
            detector=self.detector.name,
            model=self.model,
            unscored=stretch,
            message=message,
            id=example.id,
            question=example.question,
            passages=example.passages,
            profile=self.detector.profile_,
        )

    def _ask(self, traces: Sequence[Trace]) -> tuple[Scores, Scores, float]:
        """Return (prompt, token) scores, (token,) span scores and the response score, all finite.

        Raises:
            _DetectorError: If the detector raises, or returns anything else.
        """
        detector, tokens = self.detector, traces[0].tokens
        method = "token_scores"
        try:
            per_prompt = np.stack([_as_scores(detector, method, detector.token_scores(t), tokens) for t in traces])
            method = "span_scores"
            stretches = np.stack([_as_scores(detector, method, detector.span_scores(t), tokens) for t in traces])
            method = "response_score"
            score = detector.response_score(per_prompt.min(axis=0))
        except _DetectorError:
            raise
        except Exception as exc:  # whatever a foreign detector raises
            raise _DetectorError(f"The detector {detector.name!r} failed in {method}: {describe(exc)}.") from exc
        if not is_finite(score):
            raise _DetectorError(
                f"The detector {detector.name!r} must return a finite number from {method}. Got {score!r} instead."
            )
        return per_prompt, stretches.min(axis=0), float(score)

    def _judge(self, example: Example, traces: Sequence[Trace]) -> Judgement | None:
        """Return what the detector's sentence model says, its nearest sentences in the example's own passages.

        Raises:
            _DetectorError: If the detector raises, or returns what is no judgement of this response.
        """
        name = self.detector.name
        try:
            given: list[object] = [self.detector.judge(trace) for trace in traces]
        except Exception as exc:  # whatever a foreign detector raises
            raise _DetectorError(f"The detector {name!r} failed in judge: {describe(exc)}.") from exc
        if all(item is None for item in given):
            return None
        try:
            judgements = []
            for trace, item in zip(traces, given, strict=True):
                read = trace.layout.passage_texts or [example.passages[i] for i in trace.layout.passage_numbers]
                judgement = check_judgement(item, example.response, read)
                judgements.append(in_passages(judgement, trace.layout, example.passages))
            return merge_judgements(judgements, self.detector.response_from_sentences)
        except InputError as exc:
            raise _DetectorError(f"The detector {name!r} must return a judgement or None from judge: {exc}.") from exc
        except Exception as exc:  # whatever a foreign detector raises
            raise _DetectorError(f"The detector {name!r} failed in response_from_sentences: {describe(exc)}.") from exc

    def verdict(
        self, example: Example, traces: Sequence[Trace], threshold: Threshold | Callable[[], Threshold]
    ) -> Verdict:
        """Return the verdict of one example.

        Args:
            example: The example.
            traces: One trace, or one per prompt if the passages were packed into several; a token that is
                supported in any of them counts as supported.
            threshold: Where the lines are drawn, or what says so; it is asked only if there is a score.

        Returns:
            The verdict; its outcome is ``failed`` if the detector raises or returns no finite scores.
        """
        try:
            per_prompt, bare_stretches, score = self._ask(traces)
            judgement = self._judge(example, traces)
        except _DetectorError as exc:
            return self.unscored(example, "failed", str(exc))
        threshold = threshold() if callable(threshold) else threshold
        scores: Scores = per_prompt.min(axis=0)
        layout = traces[0].layout
        response = example.response
        offsets = [] if layout.response_offsets is None else [(int(s), int(e)) for s, e in layout.response_offsets]
        stretches = smooth(bare_stretches, self.detector.window)
        weights = _passage_weights(traces, per_prompt.argmin(axis=0), len(example.passages))
        if judgement is not None:
            score = float(judgement.score)
        flagged = score >= threshold.response
        found = find_spans(response, offsets, stretches, threshold.span)
        if judgement is not None:
            found = judged_spans(
                found, judgement, threshold, lambda ranges: aggregate_units(ranges, offsets, stretches)
            )
        elif flagged and not found:
            found = _highest_sentence(response, offsets, stretches)
        spans = tuple(
            Span(start, end, response[start:end], mean, _evidence(weights, offsets, start, end))
            for start, end, mean in found
        )
        if judgement is None:
            sentences = _sentences(response, offsets, scores, spans)
        else:
            spans = explained(spans, judgement)
            sentences = judged_sentences(response, judgement, threshold, spans)
        holes = _holes(response, layout)
        return Verdict(
            outcome="partial" if holes else "scored",
            response=response,
            score=score,
            flagged=flagged,
            aggregation=self.detector.aggregation,
            detector=self.detector.name,
            model=self.model,
            threshold=threshold,
            tokens=tuple(
                TokenScore(start, end, response[start:end], float(value), float(stretch))
                for (start, end), value, stretch in zip(offsets, scores, stretches, strict=True)
            ),
            spans=spans,
            sentences=sentences,
            unscored=holes,
            message=_message(traces),
            contrast=dict(layout.contrast) if self.detector.uses_contrast else None,
            id=example.id,
            question=example.question,
            passages=example.passages,
            probability=None if judgement is None else float(judgement.probability),
            profile=self.detector.profile_,
        )


def _as_scores(detector: Detector, method: str, given: object, tokens: int) -> Scores:
    """What a detector returned, as (token,) finite numbers."""
    array = np.asarray(given)
    if array.dtype.kind not in "fiu" or array.shape != (tokens,):
        raise _DetectorError(
            f"The detector {detector.name!r} must return ({tokens},) numbers from {method}. "
            f"Got shape {array.shape}, type {array.dtype} instead."
        )
    scores: Scores = array.astype(np.float64)
    wrong = np.flatnonzero(~(np.abs(scores) < _LARGEST))
    if len(wrong):
        raise _DetectorError(
            f"The detector {detector.name!r} must return finite scores from {method}. "
            f"Got {scores[wrong[0]]} for response token {wrong[0]} instead."
        )
    return scores


def _highest_sentence(response: str, offsets: list[tuple[int, int]], stretches: Scores) -> list[tuple[int, int, float]]:
    """The sentence to point at where an answer is flagged as a whole and no stretch of it stands out."""
    ranges = split_sentences(response)
    scored = [
        (mean, start, end)
        for (start, end), mean in zip(ranges, aggregate_units(ranges, offsets, stretches), strict=True)
        if mean is not None
    ]
    if not scored:
        return []
    mean, start, end = max(scored)
    return [(start, end, mean)]


def _sentences(
    response: str, offsets: list[tuple[int, int]], scores: Scores, spans: Sequence[Span]
) -> tuple[SentenceScore, ...]:
    ranges = split_sentences(response)
    return tuple(
        SentenceScore(start, end, response[start:end], score, any(s.start < end and start < s.end for s in spans))
        for (start, end), score in zip(ranges, aggregate_units(ranges, offsets, scores), strict=True)
    )


def _holes(response: str, layout: Layout) -> tuple[Unscored, ...]:
    if layout.response_offsets is None:
        return ()
    reason = "the tokenizer drops these characters"
    return tuple(Unscored(start, end, reason) for start, end in uncovered(response, layout.response_offsets))


def _passage_weights(traces: Sequence[Trace], chosen: Scores, passages: int) -> Scores | None:
    """Attention mass on each passage of the example, (token, passage), from the prompt that supports it best."""
    if any("passage_attention" not in trace for trace in traces):
        return None
    weights = np.zeros((traces[0].tokens, passages))
    for number, trace in enumerate(traces):
        mine = np.flatnonzero(chosen == number)
        for column, passage in enumerate(trace.layout.passage_numbers):
            weights[mine, passage] += trace["passage_attention"][mine, column]
    return weights


def _evidence(weights: Scores | None, offsets: Sequence[tuple[int, int]], start: int, end: int) -> tuple[Evidence, ...]:
    if weights is None:
        return ()
    inside = [i for i, (s, e) in enumerate(offsets) if s < end and start < e]
    mass = weights[inside].sum(axis=0)
    total = mass.sum()
    if not inside or total <= 0:
        return ()
    order = np.argsort(-mass, kind="stable")[:_MAX_EVIDENCE]
    return tuple(Evidence(int(i), float(mass[i] / total)) for i in order if mass[i] > 0)


def _message(traces: Sequence[Trace]) -> str:
    notes = []
    if len(traces) > 1:
        notes.append(
            f"The passages were read in {len(traces)} prompts; a token counts as supported if it is in any of them."
        )
    blind = max(trace.blind_layers for trace in traces)
    if blind:
        layers = len(traces[0].attention_layers)
        notes.append(f"{blind} of {layers} attention layers have a window too short to see all passages.")
    return " ".join(notes)
