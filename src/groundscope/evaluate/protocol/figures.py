"""What plots show, reduced to what a picture can resolve, so that results can be drawn again from their file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from groundscope.evaluate.metrics.binary import Curve, Floats, calibration
from groundscope.evaluate.protocol.crossfit import Scored
from groundscope.evaluate.protocol.scoring import Candidate
from groundscope.evaluate.protocol.units import Truth, Units
from groundscope.evaluate.results.results import Anatomy, Figure

_POINTS = 200
_MOST_BINS = 40
_FEWEST_BINS = 8
_TAIL = 0.005


def figure(candidate: Candidate, units: Units) -> Figure | None:
    """Return the curves and densities of one row at one level; ``None`` without both classes."""
    if not 0 < units.positives < units.size or units.level == "span":
        return None
    curve = Curve.of(units.labels, units.scores)
    x, y = curve.false_alarms / curve.negatives, curve.hits / curve.positives
    precision = curve.hits / (curve.hits + curve.false_alarms)
    low, high = np.quantile(units.scores, (_TAIL, 1 - _TAIL))
    if low == high:
        low, high = low - 0.5, high + 0.5
    bins = int(np.clip(np.sqrt(len(units.scores)), _FEWEST_BINS, _MOST_BINS))
    edges = np.linspace(low, high, bins + 1)
    clipped = np.clip(units.scores, low, high)
    densities = [np.histogram(clipped[mask], edges, density=True)[0] for mask in (~units.labels, units.labels)]
    probable = candidate.kind == "method" and units.scores.min() >= 0 and units.scores.max() <= 1
    return Figure(
        row=candidate.name,
        level=units.level,
        roc=((0.0, 0.0), *_thin(x, y)),
        pr=((0.0, float(precision[0])), *_thin(y, precision)),
        edges=_plain(edges),
        faithful=_plain(densities[0]),
        hallucinated=_plain(densities[1]),
        calibration=tuple(calibration(units.labels, units.scores)) if probable else (),
    )


def anatomy(scored: Scored, truth: Truth) -> Anatomy | None:
    """Return the weights and the external and internal scores of one row; ``None`` if it has neither."""
    heads, layers = scored.head_weights, scored.layer_weights
    if layers is None and heads is not None:
        layers = np.abs(heads).mean(axis=1)
    pairs = tuple(
        (pair[0], pair[1], int(truth.responses[index])) for index, pair in enumerate(scored.pairs) if pair is not None
    )
    if layers is None and not pairs:
        return None
    return Anatomy(
        row=scored.candidate.name,
        head_weights=() if heads is None else tuple(_plain(layer) for layer in heads),
        layer_weights=() if layers is None else _plain(layers),
        pairs=pairs,
    )


def _thin(x: Floats, y: Floats) -> tuple[tuple[float, float], ...]:
    """Return at most so many points, the last one among them, evenly spaced along the curve."""
    steps = np.cumsum(np.abs(np.diff(x, prepend=x[:1])) + np.abs(np.diff(y, prepend=y[:1])))
    kept = np.arange(len(x))
    if len(x) > _POINTS:
        kept = np.unique(np.append(np.searchsorted(steps, np.linspace(0, steps[-1], _POINTS)), len(x) - 1))
        kept = kept[kept < len(x)]
    return tuple(zip(_plain(x[kept]), _plain(y[kept]), strict=True))


def _plain(values: Floats | Sequence[float]) -> tuple[float, ...]:
    return tuple(float(f"{value:.6g}") for value in values)
