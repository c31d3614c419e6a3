"""Which heads and layers tell faithful from hallucinated responses (ReDeEP, arXiv 2410.11414, section 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from groundscope.errors import InputError
from groundscope.evaluate.hypotheses.inference import linearised, two_sided_p
from groundscope.evaluate.metrics.binary import Floats, Labels
from groundscope.evaluate.metrics.bootstrap import Estimate, Resampler
from groundscope.evaluate.protocol.splits import sources
from groundscope.learn.labels import check_both_classes, response_label
from groundscope.trace.signals import spec_of
from groundscope.trace.traced import Traced

Place = tuple[int, int]


@dataclass(frozen=True)
class PlaceDifference:
    """One head, or one layer, of a signal.

    Attributes:
        layer: 0-based.
        head: 0-based; ``None`` for signals per layer.
        difference: Mean over responses, faithful minus hallucinated, with its interval by source.
        p: Two-sided, t-test with a standard error by source; ``None`` where it cannot be told.
        p_holm: Holm's adjustment: the chance of any false alarm among all places.
        p_bh: Benjamini and Hochberg's: the share of false alarms among those called.
        pearson: Correlation of the response mean with the label (1 = hallucinated), with its interval.
    """

    layer: int
    head: int | None
    difference: Estimate
    p: float | None
    p_holm: float | None
    p_bh: float | None
    pearson: Estimate


@dataclass(frozen=True)
class Relation:
    """How the copying scores of heads go with what the heads do.

    Attributes:
        heads: Heads that have both.
        difference: Correlation of copying score and difference, with its interval by source.
        difference_ranks: The same of ranks (Spearman).
        label: Correlation of copying score and correlation with being faithful, as in ReDeEP's appendix.
    """

    heads: int
    difference: Estimate
    difference_ranks: Estimate
    label: Estimate


@dataclass(frozen=True)
class SignalDifferences:
    """What a signal does in faithful and in hallucinated responses, place by place.

    Attributes:
        signal: Its name.
        responses: Labelled responses.
        hallucinated: Those hallucinated.
        sources: Different sources.
        places: Heads or layers, in order.
        copying: Relation to copying scores; ``None`` where none were given.
    """

    signal: str
    responses: int
    hallucinated: int
    sources: int
    places: tuple[PlaceDifference, ...]
    copying: Relation | None = None

    @property
    def higher_when_faithful(self) -> int:
        """Places whose mean is higher in faithful responses."""
        return sum((place.difference.value or 0) > 0 for place in self.places)

    def significant(self, alpha: float = 0.05) -> list[PlaceDifference]:
        """Return the places that differ after Holm's adjustment."""
        return [place for place in self.places if place.p_holm is not None and place.p_holm < alpha]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "higher_when_faithful": self.higher_when_faithful}


def signal_differences(
    data: Traced,
    signal: str,
    *,
    copying: Mapping[Place, float] | None = None,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> SignalDifferences:
    """Compare faithful and hallucinated responses in every head or layer of a signal.

    Args:
        data: Traced examples with labels, of one model.
        signal: Name of a signal with an axis ``layer``.
        copying: Copying score by (layer, head).
        resamples: Draws of the bootstrap.
        confidence: Of the intervals.
        seed: Of the draws.

    Raises:
        InputError: If labels are missing or of one class, or the signal has no layers.
    """
    if spec_of(signal).axes not in ("token x layer", "token x layer x head"):
        raise InputError(f"A signal with a layer axis is needed. Got {signal!r}, which has {spec_of(signal).axes}.")
    if not len(data):
        raise InputError("Differences need labelled examples. Got none.")
    labels = np.array([response_label(item.example) for item in data], dtype=np.bool_)
    check_both_classes("The comparison of faithful and hallucinated", labels, "response")
    means = np.stack([item.trace[signal].astype(np.float64).mean(axis=0) for item in data])
    first = data[0].trace
    resampler = Resampler(sources(data), resamples, confidence, seed)
    layers = first.attention_layers if spec_of(signal).source == "attention" else ()
    names = list(layers) or list(range(means.shape[1]))
    heads: list[int | None] = [None] if means.ndim == 2 else list(range(means.shape[2]))
    places = [(layer, head) for layer in names for head in heads]
    columns = means.reshape(len(means), -1)
    found = linearised(columns, ~labels, resampler.codes)
    draws = _drawn_differences(resampler, columns, labels)
    p = two_sided_p(found)
    holm, bh = adjusted(p)
    pearson, pearson_draws = _correlations(resampler, columns, labels)
    entries = tuple(
        PlaceDifference(
            layer,
            head,
            resampler.estimate(float(found.difference[i]), draws[:, i]),
            _known(p[i]),
            _known(holm[i]),
            _known(bh[i]),
            resampler.estimate(float(pearson[i]), pearson_draws[:, i]),
        )
        for i, (layer, head) in enumerate(places)
    )
    relation = None
    if copying is not None and means.ndim == 3:
        faithful = (-pearson, -pearson_draws)  # the label is 1 where hallucinated
        relation = _relation(copying, places, resampler, (found.difference, draws), faithful)
    return SignalDifferences(signal, len(data), int(labels.sum()), len(resampler.names), entries, relation)


def adjusted(p: Floats) -> tuple[Floats, Floats]:
    """Return p-values adjusted by Holm's and by Benjamini and Hochberg's method; NaN stays and does not count."""
    from scipy import stats

    holm, bh = np.full_like(p, np.nan), np.full_like(p, np.nan)
    known = np.flatnonzero(np.isfinite(p))
    if len(known):
        order = known[np.argsort(p[known], kind="stable")]
        steps = p[order] * np.arange(len(order), 0, -1)
        holm[order] = np.minimum(np.maximum.accumulate(steps), 1)
        bh[known] = stats.false_discovery_control(p[known])
    return holm, bh


def _drawn_differences(resampler: Resampler, columns: Floats, labels: Labels) -> Floats:
    """Faithful minus hallucinated mean of every column in every resample, (resample, column)."""
    parts = []
    for side in (~labels, labels):
        weights = side.astype(np.float64)[:, None]
        sums = resampler.sums(resampler.codes, np.concatenate([weights, columns * weights], axis=1))
        with np.errstate(divide="ignore", invalid="ignore"):  # a resample without one of the classes is NaN
            parts.append(sums[:, 1:] / sums[:, :1])
    return parts[0] - parts[1]


def _correlations(resampler: Resampler, columns: Floats, labels: Labels) -> tuple[Floats, Floats]:
    """Pearson's correlation of every column with the label, and in every resample."""
    x = labels.astype(np.float64)[:, None]
    y = columns - columns.mean(axis=0)
    stacked = np.concatenate([np.ones_like(x), x, y, x * y, y * y], axis=1)
    return _pearson(stacked.sum(axis=0)[None])[0], _pearson(resampler.sums(resampler.codes, stacked))


def _pearson(sums: Floats) -> Floats:
    n, sx = sums[:, :1], sums[:, 1:2]
    sy, sxy, syy = np.split(sums[:, 2:], 3, axis=1)
    spread = (n * sx - sx * sx) * (n * syy - sy * sy)
    found: Floats = np.divide(
        n * sxy - sx * sy, np.sqrt(np.maximum(spread, 0)), out=np.full_like(spread, np.nan), where=spread > 0
    )
    return found


def _relation(
    copying: Mapping[Place, float],
    places: list[tuple[int, int | None]],
    resampler: Resampler,
    differences: tuple[Floats, Floats],
    correlations: tuple[Floats, Floats],
) -> Relation:
    both = [i for i, (layer, head) in enumerate(places) if head is not None and (layer, head) in copying]
    if len(both) < 3:
        raise InputError(
            f"The relation to copying scores needs at least 3 heads that have one. Got {len(both)} of {len(places)}."
        )
    scores = np.array([copying[layer, head] for layer, head in (places[i] for i in both) if head is not None])

    def against(pair: tuple[Floats, Floats], of: npt.NDArray[np.float64], ranks: bool = False) -> Estimate:
        rows = np.concatenate([pair[0][None, both], pair[1][:, both]])
        found = _rowwise(_ranks(rows) if ranks else rows, of)
        return resampler.estimate(float(found[0]), found[1:])

    return Relation(
        len(both),
        against(differences, scores),
        against(differences, _ranks(scores[None])[0], ranks=True),
        against(correlations, scores),
    )


def _ranks(rows: Floats) -> Floats:
    from scipy import stats

    found: Floats = stats.rankdata(rows, axis=1, nan_policy="propagate")
    return found


def _rowwise(rows: Floats, of: Floats) -> Floats:
    """Pearson's correlation of each row with a vector; NaN where either is constant."""
    x, y = of - of.mean(), rows - rows.mean(axis=1, keepdims=True)
    scale = np.sqrt((x @ x) * np.square(y).sum(axis=1))
    found: Floats = np.divide(y @ x, scale, out=np.full(len(rows), np.nan), where=scale > 0)
    return found


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
