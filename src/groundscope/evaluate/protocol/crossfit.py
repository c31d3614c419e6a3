"""Cross-fitting: what learns is fitted anew in every fold, its thresholds drawn on dev, its scores taken on test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from groundscope.detectors.base import Detector
from groundscope.detectors.learnable import check_disjoint
from groundscope.errors import is_finite
from groundscope.evaluate.metrics.binary import Floats
from groundscope.evaluate.protocol.scoring import Candidate, DetectorCandidate, ExampleScore, Scores, reason, score_all
from groundscope.evaluate.protocol.splits import Split
from groundscope.evaluate.protocol.thresholds import Objective
from groundscope.evaluate.protocol.units import Truth, choose_lines
from groundscope.evaluate.results.results import Lines


@dataclass(eq=False)
class Scored:
    """One candidate over all folds.

    Attributes:
        candidate: What was measured.
        scores: (example,) held-out scores; ``None`` where there is none.
        lines: (example,) the thresholds of the fold in which each example is held out.
        folds: The thresholds fold by fold.
        failure: Why nothing could be measured; ``None`` if it could.
        failures: (position, reason) of single examples that could not be scored.
        head_weights: (layer, head) weights of the probe, mean over folds, if it has such.
        layer_weights: (layer,) likewise.
        pairs: (example,) external and internal score, if it has such.
    """

    candidate: Candidate
    scores: list[ExampleScore | None]
    lines: list[Lines | None]
    folds: list[Lines] = field(default_factory=list)
    failure: str | None = None
    failures: list[tuple[int, str]] = field(default_factory=list)
    head_weights: Floats | None = None
    layer_weights: Floats | None = None
    pairs: list[tuple[float, float] | None] = field(default_factory=list)


def cross_fit(candidate: Candidate, truth: Truth, splits: Sequence[Split], objective: Objective) -> Scored:
    """Measure one candidate in every fold; whatever it raises ends this candidate only.

    Args:
        candidate: What to measure.
        truth: The examples and their labels.
        splits: The folds; fit on one part, draw lines on the second, score the third.
        objective: What thresholds are to achieve.
    """
    size = len(truth.data)
    found = Scored(candidate, [None] * size, [None] * size, pairs=[None] * size)
    weights: dict[str, list[Floats]] = {"head_weights": [], "layer_weights": []}
    kept: Scores | None = None
    try:
        for split in splits:
            parts = [[truth.data[i] for i in part] for part in (split.train, split.dev, split.test)]
            check_disjoint(parts[0], parts[2])
            check_disjoint(parts[1], parts[2])
            if isinstance(candidate, DetectorCandidate):
                candidate.check_loaded(parts[1] + parts[2])
            scorer = candidate.fitted(parts[0], parts[1])
            if candidate.fitting == "cross-fitted":
                wanted = np.concatenate([split.dev, split.test])
                scores = _place(score_all(scorer, [truth.data[i] for i in wanted]), wanted, size)
            else:  # the same in every fold
                kept = scores = kept or score_all(scorer, truth.data)
            lines = choose_lines(truth, scores.items, split.dev, objective, candidate.line())
            found.folds.append(lines)
            test = set(split.test.tolist())
            found.failures += [(index, why) for index, why in scores.failures if index in test]
            for index in test:
                found.scores[index], found.lines[index] = scores.items[index], lines
            if isinstance(candidate, DetectorCandidate):
                _extras(candidate.last, truth, split.test, found, weights)
    except Exception as exc:  # whatever a foreign detector raises
        found.failure = reason(exc)
        found.scores = [None] * size
        return found
    found.head_weights, found.layer_weights = (_mean(weights[name]) for name in ("head_weights", "layer_weights"))
    if found.failures and not any(score is not None for score in found.scores):
        found.failure = found.failures[0][1]
    return found


def _place(scores: Scores, where: npt.NDArray[np.int64], size: int) -> Scores:
    items: list[ExampleScore | None] = [None] * size
    for position, item in zip(where, scores.items, strict=True):
        items[position] = item
    return Scores(items, [(int(where[position]), why) for position, why in scores.failures])


def _extras(
    detector: Detector,
    truth: Truth,
    test: npt.NDArray[np.int64],
    found: Scored,
    weights: dict[str, list[Floats]],
) -> None:
    """Take what a detector may offer for plots: ``head_weights()``, ``layer_weights()``, ``external_internal(trace)``.

    The last one gives two numbers, or two (token,) arrays, which are averaged. A picture is no reason to lose a
    result: what fails here is left out.
    """
    for name, into in weights.items():
        offer = getattr(detector, name, None)
        value = _quietly(offer) if callable(offer) else None
        if value is not None and np.asarray(value).ndim == (2 if name == "head_weights" else 1):
            into.append(np.asarray(value, dtype=np.float64))
    offer = getattr(detector, "external_internal", None)
    if callable(offer):
        for index in test:
            pair = _quietly(offer, truth.data[index].trace)
            if isinstance(pair, tuple) and len(pair) == 2:
                external, internal = (float(np.mean(value)) for value in pair)
                if is_finite(external) and is_finite(internal):
                    found.pairs[index] = (external, internal)


def _quietly(offer: object, *arguments: object) -> object:
    try:
        return offer(*arguments)  # type: ignore[operator]
    except Exception:  # an optional extra of foreign code
        return None


def _mean(arrays: Sequence[Floats]) -> Floats | None:
    if not arrays or any(array.shape != arrays[0].shape for array in arrays):
        return None
    mean: Floats = np.mean(arrays, axis=0)
    return mean if np.isfinite(mean).all() else None
