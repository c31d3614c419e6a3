"""Bootstrap intervals clustered by source: whole sources are drawn, never single tokens or answers.

Units of one source are alike, so drawing them one by one would make intervals too narrow. Every statistic is
a function of sums per source, so all resamples are one matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from groundscope.errors import InputError, check_count
from groundscope.evaluate.metrics.binary import Curve, Floats, Labels, check_scores

Codes = npt.NDArray[np.int64]
Singles = npt.NDArray[np.float32]
# Statistics that need at least this share of the resamples to be defined.
_LEAST_DEFINED = 0.5
# With fewer sources than these, how they spread tells nothing.
LEAST_SOURCES = 5


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval.

    Attributes:
        value: On the data as they are; ``None`` where it is not defined.
        low: Lower end; ``None`` where it cannot be told (fewer than two sources, one class).
        high: Upper end.
    """

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Difference:
    """How far apart two detectors are on the same answers.

    Attributes:
        estimate: First minus second, with its interval.
        p: Two-sided bootstrap p-value of no difference; ``None`` where there is no interval.
    """

    estimate: Estimate
    p: float | None


class Resampler:
    """Draws sources with replacement, once, for every statistic: differences between detectors are paired.

    Args:
        groups: (unit,) source of every unit, as any values.
        resamples: How often to draw.
        confidence: Share of resamples inside the interval.
        seed: Of the draw.

    Raises:
        InputError: If a parameter is out of range.
    """

    def __init__(self, groups: Sequence[str], resamples: int = 1000, confidence: float = 0.95, seed: int = 0) -> None:
        check_count("Resampler", "resamples", resamples)
        if not 0 < confidence < 1:
            raise InputError(
                f"The 'confidence' parameter of Resampler must be in the range (0, 1). Got {confidence!r} instead."
            )
        self.confidence = confidence
        self.names, codes = np.unique(np.asarray(groups, dtype=object).astype(str), return_inverse=True)
        self.codes: Codes = codes.astype(np.int64)
        size = len(self.names)
        rng = np.random.default_rng(seed)
        # (resample, group): how often each source was drawn.
        self.weights = rng.multinomial(size, np.full(size, 1 / max(1, size)), size=resamples).astype(np.float32)

    def sums(self, codes: Codes, columns: Floats) -> Floats:
        """Return the columns' sums in every resample, (resample, column), from (unit, column) values."""
        present, codes = np.unique(codes, return_inverse=True)
        per_group = np.stack([np.bincount(codes, column, len(present)) for column in columns.T], axis=1)
        found: Floats = self.weights[:, present].astype(np.float64) @ per_group
        return found

    def estimate(self, value: float, draws: Floats) -> Estimate:
        """Return a figure with the percentile interval of its resamples, stretched to hold the figure itself."""
        if not np.isfinite(value):
            return Estimate(None)
        known = draws[np.isfinite(draws)]
        if len(self.names) < 2 or len(known) < max(1, _LEAST_DEFINED * len(draws)):
            return Estimate(float(value))
        tail = (1 - self.confidence) / 2
        low, high = np.quantile(known, (tail, 1 - tail))
        return Estimate(float(value), float(min(low, value)), float(max(high, value)))

    def difference(self, one: float, other: float, draws_one: Floats, draws_other: Floats) -> Difference:
        """Compare two figures drawn on the same resamples.

        The p-value is twice the smaller share of resamples on either side of zero, (k + 1) / (n + 1).
        """
        gaps = draws_one - draws_other
        estimate = self.estimate(one - other, gaps)
        known = gaps[np.isfinite(gaps)]
        if estimate.low is None:
            return Difference(estimate, None)
        below, above = np.count_nonzero(known <= 0), np.count_nonzero(known >= 0)
        return Difference(estimate, float(min(1.0, 2 * (min(below, above) + 1) / (len(known) + 1))))

    def ranking(
        self, codes: Codes, labels: Labels, scores: Floats, bins: int = 2048, curve: Curve | None = None
    ) -> tuple[Floats, Floats]:
        """Return AUROC and AUPRC of every resample, (resample,) each; NaN where a resample has one class.

        Exact up to ``bins`` distinct scores. Beyond, scores are put into that many bins of equal counts and
        the draws are shifted by what the binning changes in the figure itself.

        Args:
            codes: (unit,) position of each unit's source in :attr:`names`.
            labels: (unit,) whether hallucinated.
            scores: (unit,) finite.
            bins: Most distinct scores that are kept apart.
            curve: Of these units, where it is known already.
        """
        labels, scores = check_scores(labels, scores)
        distinct, index = np.unique(-scores, return_inverse=True)  # falling
        binned = index
        if len(distinct) > bins:
            edges = np.quantile(index, np.linspace(0, 1, bins + 1)[1:-1])
            binned = np.searchsorted(edges, index, side="right")
        size = int(binned.max()) + 1
        present, codes = np.unique(codes, return_inverse=True)
        weights, shape = self.weights[:, present], (len(present), size)
        # (group, bin): hallucinated and faithful units, from the highest score down.
        positives, negatives = (
            np.bincount(codes[rows] * size + binned[rows], minlength=shape[0] * size).reshape(shape).astype(np.float32)
            for rows in (labels, ~labels)
        )
        # The first row weighs every source once: the figure itself, as the bins see it.
        weights = np.vstack([np.ones((1, len(present)), dtype=np.float32), weights])
        roc = _aurocs(weights, positives, negatives)
        pr = _average_precisions(weights, positives, negatives)
        if len(distinct) > bins:
            exact = Curve.of(labels, scores) if curve is None else curve
            roc, pr = roc + (exact.auroc - roc[0]), pr + (exact.auprc - pr[0])
        return roc[1:], pr[1:]

    def correlation(self, codes: Codes, labels: Labels, scores: Floats) -> Floats:
        """Return Pearson's correlation of score and label in every resample, (resample,)."""
        x, y = labels.astype(np.float64), scores - scores.mean()
        n, sx, sy, sxy, syy = self.sums(codes, np.stack([np.ones_like(x), x, y, x * y, y * y], axis=1)).T
        spread = (n * sx - sx * sx) * (n * syy - sy * sy)
        found: Floats = np.divide(n * sxy - sx * sy, np.sqrt(np.maximum(spread, 0)), out=_nan(n), where=spread > 0)
        return found

    def counted(self, codes: Codes, counts: Floats) -> dict[str, Floats]:
        """Return precision, recall, F1 and IoU in every resample from (unit, 3) hits, false alarms and misses."""
        hit, alarm, missed = self.sums(codes, counts).T
        return {
            "precision": _divide(hit, hit + alarm),
            "recall": _divide(hit, hit + missed),
            "f1": _divide(2 * hit, 2 * hit + alarm + missed),
            "iou": _divide(hit, hit + alarm + missed),
        }


def _aurocs(weights: Singles, positives: Singles, negatives: Singles) -> Floats:
    """AUROC of each resample: pairs of a hallucinated and a faithful unit won, a form bilinear in the weights."""
    beaten = negatives.sum(axis=1, keepdims=True) - np.cumsum(negatives, axis=1) + negatives / 2
    won = (positives @ beaten.T).astype(np.float64)  # (group of the one, group of the other)
    wide = weights.astype(np.float64)
    pairs = (wide @ positives.sum(axis=1)) * (wide @ negatives.sum(axis=1))
    return _divide(((wide @ won) * wide).sum(axis=1), pairs)


def _average_precisions(weights: Singles, positives: Singles, negatives: Singles) -> Floats:
    """Average precision of each resample; counts are whole numbers far below the 2^24 that single precision holds."""
    new = weights @ positives  # (resample, bin)
    flagged = np.cumsum(weights @ (positives + negatives), axis=1)
    precision = np.divide(np.cumsum(new, axis=1), flagged, out=flagged, where=flagged > 0)
    found = np.einsum("rb,rb->r", new, precision, dtype=np.float64)
    return _divide(found, new.sum(axis=1, dtype=np.float64))


def _divide(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=_nan(whole), where=whole > 0)


def _nan(like: Floats) -> Floats:
    return np.full(like.shape, np.nan)
