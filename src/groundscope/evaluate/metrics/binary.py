"""Metrics of binary labels against scores; label 1 is hallucinated, a higher score says so.

Where a metric is not defined (one class only, constant scores) it is NaN, never a guess.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from groundscope.errors import InputError

Labels = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Counts:
    """How flags and labels meet.

    Attributes:
        hit: Flagged and hallucinated.
        false_alarm: Flagged and faithful.
        missed: Not flagged and hallucinated.
    """

    hit: float
    false_alarm: float
    missed: float

    @property
    def precision(self) -> float:
        """Share of what is flagged that is hallucinated; NaN if nothing is flagged."""
        return _ratio(self.hit, self.hit + self.false_alarm)

    @property
    def recall(self) -> float:
        """Share of what is hallucinated that is flagged; NaN if nothing is hallucinated."""
        return _ratio(self.hit, self.hit + self.missed)

    @property
    def f1(self) -> float:
        """Harmonic mean of the two, 2 hits / (flagged + hallucinated); NaN if both are empty."""
        return _ratio(2 * self.hit, 2 * self.hit + self.false_alarm + self.missed)

    @property
    def iou(self) -> float:
        """Intersection over union, hits / (flagged or hallucinated); NaN if both are empty."""
        return _ratio(self.hit, self.hit + self.false_alarm + self.missed)


def count(labels: Labels, flagged: Labels) -> Counts:
    """Count how flags and labels of the same units meet."""
    labels, flagged = labels.astype(bool), flagged.astype(bool)
    hit = int(np.count_nonzero(labels & flagged))
    return Counts(hit, int(flagged.sum()) - hit, int(labels.sum()) - hit)


@dataclass(frozen=True)
class Curve:
    """Hits and false alarms at every threshold, from the highest score down.

    Attributes:
        thresholds: (point,) distinct scores, falling; a unit is flagged if its score is at least this.
        hits: (point,) hallucinated units flagged.
        false_alarms: (point,) faithful units flagged.
    """

    thresholds: Floats
    hits: Floats
    false_alarms: Floats

    @classmethod
    def of(cls, labels: Labels, scores: Floats, weights: Floats | None = None) -> Curve:
        """Build the curve.

        Args:
            labels: (unit,) whether hallucinated.
            scores: (unit,) finite scores.
            weights: (unit,) how much each unit counts, at least 0; 1 by default.

        Raises:
            InputError: If the arrays do not match or a score is not finite.
        """
        labels, scores = check_scores(labels, scores)
        counts = np.ones(len(scores)) if weights is None else np.asarray(weights, dtype=np.float64)
        order = np.argsort(-scores, kind="stable")
        falling = scores[order]
        last = np.flatnonzero(np.append(falling[1:] != falling[:-1], True)[: len(falling)])
        hits = np.cumsum(np.where(labels, counts, 0.0)[order])[last]
        alarms = np.cumsum(np.where(labels, 0.0, counts)[order])[last]
        return cls(falling[last], hits, alarms)

    @property
    def positives(self) -> float:
        """Weight of all hallucinated units."""
        return float(self.hits[-1]) if len(self.hits) else 0.0

    @property
    def negatives(self) -> float:
        """Weight of all faithful units."""
        return float(self.false_alarms[-1]) if len(self.hits) else 0.0

    @property
    def auroc(self) -> float:
        """Area under the ROC curve; ties count half."""
        if not self.positives or not self.negatives:
            return float("nan")
        x, y = np.insert(self.false_alarms, 0, 0.0), np.insert(self.hits, 0, 0.0)
        return float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2) / (self.positives * self.negatives))

    @property
    def auprc(self) -> float:
        """Average precision: the precision at each threshold, weighted by the recall it adds."""
        if not self.positives:
            return float("nan")
        flagged = self.hits + self.false_alarms
        precision = np.divide(self.hits, flagged, out=np.zeros_like(flagged), where=flagged > 0)
        return float(np.sum(np.diff(self.hits, prepend=0.0) * precision) / self.positives)

    @property
    def f1(self) -> Floats:
        """(point,) F1 at each threshold."""
        return 2 * self.hits / np.maximum(self.hits + self.false_alarms + self.positives, 1e-300)

    @property
    def best_f1(self) -> float:
        """Highest F1 of any threshold, chosen on what it is measured on, so it flatters; NaN without positives."""
        return float(self.f1.max()) if self.positives else float("nan")


def auroc(labels: Labels, scores: Floats) -> float:
    """Return the probability that a hallucinated unit outscores a faithful one, ties half; NaN for one class.

    Raises:
        InputError: See :meth:`Curve.of`.
    """
    return Curve.of(labels, scores).auroc


def auprc(labels: Labels, scores: Floats) -> float:
    """Return the average precision; NaN without a hallucinated unit.

    Raises:
        InputError: See :meth:`Curve.of`.
    """
    return Curve.of(labels, scores).auprc


def pearson(labels: Labels, scores: Floats) -> float:
    """Return Pearson's correlation of score and label, in [-1, 1]; NaN if either is constant.

    Raises:
        InputError: See :meth:`Curve.of`.
    """
    labels, scores = check_scores(labels, scores)
    if not len(labels) or labels.all() or not labels.any() or scores.min() == scores.max():
        return float("nan")
    x, y = labels - labels.mean(), scores - scores.mean()
    return float(np.clip(x @ y / np.sqrt((x @ x) * (y @ y)), -1, 1))


def always_positive_f1(prevalence: float) -> float:
    """Return the F1 of flagging everything, 2 p / (1 + p)."""
    return 2 * prevalence / (1 + prevalence)


def calibration(labels: Labels, scores: Floats, bins: int = 10) -> list[tuple[float, float, int]]:
    """Return (mean score, rate of hallucination, units) of bins of equal width over [0, 1]; empty bins are left out.

    Raises:
        InputError: If a score lies outside [0, 1].
    """
    labels, scores = check_scores(labels, scores)
    if len(scores) and not 0 <= scores.min() <= scores.max() <= 1:
        raise InputError(
            f"A calibration curve needs probabilities. Got scores from {scores.min():g} to {scores.max():g} instead."
        )
    index = np.minimum((scores * bins).astype(int), bins - 1)
    return [
        (float(scores[index == b].mean()), float(labels[index == b].mean()), int((index == b).sum()))
        for b in range(bins)
        if (index == b).any()
    ]


def check_scores(labels: Labels, scores: Floats) -> tuple[Labels, Floats]:
    """Return labels and scores as arrays, refusing what cannot be compared.

    Raises:
        InputError: If their shapes differ or a score is not finite.
    """
    labels, scores = np.asarray(labels, dtype=bool), np.asarray(scores, dtype=np.float64)
    if labels.ndim != 1 or labels.shape != scores.shape:
        raise InputError(
            f"There must be one score per label. Got labels of shape {labels.shape} and scores of {scores.shape}."
        )
    if not np.isfinite(scores).all():
        raise InputError("Scores must be finite to be measured. Got NaN or infinity among them.")
    return labels, scores


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")
