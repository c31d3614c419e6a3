"""Carry a linear probe over to another model: a linear map of features, fitted on text that both have read.

Lookback Lens (arXiv 2407.07071, section 3.3) maps the features of model B to those of model A by least squares
and applies A's classifier. The classifier is linear, and ridge regression treats every target alone, so mapping
all features first and regressing A's log-odds on B's features at once give the same weights; the second is done
here, and what comes out is an ordinary probe for B.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from groundscope.detectors.learnable import LearnedDetector
from groundscope.detectors.learned.windowed import WindowedProbe
from groundscope.errors import InputError, MismatchError, check_choice, is_finite
from groundscope.evaluate.protocol.splits import sources
from groundscope.learn.probe import LinearProbe
from groundscope.text.sentences import split_sentences
from groundscope.trace.traced import Traced, TracedExample
from groundscope.verdict import Threshold

Floats = npt.NDArray[np.float64]
UNITS = ("sentence", "response")
_FOLDS = 5


@dataclass(frozen=True)
class Transfer:
    """A probe for another model, and how well the map does on sources that it was not fitted on.

    Attributes:
        detector: For the target model.
        units: Sentences or responses that the map was fitted on.
        sources: How many sources they come from.
        features: Of the target model, per unit.
        determined: Whether there are more units than features; if not, and ``alpha`` is 0, the solution of least
            norm was taken.
        r2: Share of the variance of the source probe's log-odds that is explained on held-out sources.
        spearman: Rank correlation of both on held-out sources.
    """

    detector: WindowedProbe
    units: int
    sources: int
    features: int
    determined: bool
    r2: float
    spearman: float


def transfer_detector(
    detector: LearnedDetector, source: Traced, target: Traced, *, alpha: float = 1.0, unit: str = "sentence"
) -> Transfer:
    """Fit the map and return the probe for the target model.

    Args:
        detector: A fitted linear probe of the source model.
        source: Examples as the source model read them; labels are not needed.
        target: The same examples as the target model read them.
        alpha: Strength of the ridge penalty on standardised features, at least 0; 0 is least squares.
        unit: What features are averaged over: ``sentence``, found by characters, since the two models may cut
            text into other tokens, or ``response``, as published.

    Raises:
        InputError: If the detector is no linear probe, examples are missing on one side, or too few.
        MismatchError: If ``source`` was not read by the detector's model, or both sides are the same model.
    """
    from scipy.stats import spearmanr

    check_choice("transfer", "unit", unit, UNITS)
    if not is_finite(alpha) or alpha < 0:
        raise InputError(f"The 'alpha' parameter of transfer must be a number of at least 0. Got {alpha!r} instead.")
    if not isinstance(detector, WindowedProbe):
        raise InputError(
            f"Only linear probes can be carried over: lookback-lens, aggtruth, hidden-state. Got {detector.name!r}; "
            "train it on the other model instead."
        )
    detector.check_fitted()
    pairs = _pairs(source, target)
    detector.check_reader(pairs[0][0].trace.fingerprint)
    fingerprint = pairs[0][1].trace.fingerprint
    if fingerprint.get("weights") == pairs[0][0].trace.fingerprint.get("weights"):
        raise MismatchError("Both sides were read by the same model; there is nothing to carry over.")
    rows, wanted, owners = [], [], []
    names = sources([one for one, _ in pairs])
    for name, (one, other) in zip(names, pairs, strict=True):
        given, aim = detector.features(one.trace), detector.features(other.trace)
        for start, end in _units(one, unit):
            left, right = _inside(one, start, end), _inside(other, start, end)
            if left.any() and right.any():
                wanted.append(float(detector.probe_.decision(given[left].mean(axis=0))))
                rows.append(aim[right].mean(axis=0, dtype=np.float64))
                owners.append(name)
    features, log_odds = np.array(rows), np.array(wanted)
    groups = sorted(set(owners))
    if len(groups) < 2:
        raise InputError(f"A map is fitted on texts of several sources. Got {len(groups)}; give more examples.")
    number = np.array([groups.index(name) for name in owners]) % min(_FOLDS, len(groups))
    predicted = np.empty(len(log_odds))
    for fold in range(min(_FOLDS, len(groups))):
        coef, intercept = _ridge(features[number != fold], log_odds[number != fold], alpha)
        predicted[number == fold] = features[number == fold] @ coef + intercept
    coef, intercept = _ridge(features, log_odds, alpha)
    residual = float(((log_odds - predicted) ** 2).sum() / max(((log_odds - log_odds.mean()) ** 2).sum(), 1e-300))
    return Transfer(
        detector=_made(detector, coef, intercept, pairs[0][1]),
        units=len(log_odds),
        sources=len(groups),
        features=features.shape[1],
        determined=len(log_odds) > features.shape[1],
        r2=1 - residual,
        spearman=float(spearmanr(log_odds, predicted).statistic),
    )


def _made(detector: WindowedProbe, coef: Floats, intercept: float, example: TracedExample) -> WindowedProbe:
    made = type(detector)(**detector.get_params())
    probe = LinearProbe()
    arrays = {"coef": coef, "intercept": np.array([intercept]), "selected": coef != 0}
    probe.restore(arrays, {"iterations": 0, "converged": True})
    made.probe_ = probe
    made.shape_ = tuple(example.trace[detector.signal].shape[1:])
    made.units_ = detector.units_
    made.fingerprint_ = dict(example.trace.fingerprint)
    made.trained_on_ = list(detector.trained_on_)
    old = detector.threshold_
    origin = detector.fingerprint_.get("model")
    made.threshold_ = None if old is None else Threshold(old.response, old.span, f"{old.source}, read by {origin}")
    return made


def _pairs(source: Traced, target: Traced) -> list[tuple[TracedExample, TracedExample]]:
    there = {item.example.id: item for item in target}
    pairs = []
    for item in source:
        if item.example.id is None or item.example.id not in there:
            continue
        other = there[item.example.id]
        if other.example.response != item.example.response:
            raise InputError(f"Example {item.example.id!r} has another response on either side. Give the same data.")
        pairs.append((item, other))
    if not pairs:
        raise InputError("No example was read by both models. Give the same data, with ids, for both.")
    return pairs


def _units(item: TracedExample, unit: str) -> Iterator[tuple[int, int]]:
    if unit == "response":
        yield 0, len(item.example.response)
    else:
        yield from split_sentences(item.example.response)


def _inside(item: TracedExample, start: int, end: int) -> npt.NDArray[np.bool_]:
    offsets = item.trace.layout.response_offsets
    if offsets is None:
        raise InputError(f"Example {item.example.id!r} was laid out without offsets, so its sentences find no tokens.")
    ranges = np.asarray(offsets)
    found: npt.NDArray[np.bool_] = (ranges[:, 0] < end) & (start < ranges[:, 1])
    return found


def _ridge(features: Floats, wanted: Floats, alpha: float) -> tuple[Floats, float]:
    """Weights and intercept for unscaled features; of least norm (on scaled features) where ``alpha`` is 0."""
    mean, scale = features.mean(axis=0), features.std(axis=0)
    # Rounding makes a constant column vary a little.
    varies = scale > 1e-9 * np.maximum(np.abs(mean), 1e-9)
    scaled = np.where(varies, features - mean, 0.0) / np.where(varies, scale, 1.0)
    centred = wanted - wanted.mean()
    if alpha > 0:
        # The smaller of the two equivalent systems.
        if scaled.shape[0] >= scaled.shape[1]:
            weights = np.linalg.solve(scaled.T @ scaled + alpha * np.eye(scaled.shape[1]), scaled.T @ centred)
        else:
            weights = scaled.T @ np.linalg.solve(scaled @ scaled.T + alpha * np.eye(scaled.shape[0]), centred)
    else:
        weights = np.linalg.lstsq(scaled, centred, rcond=None)[0]
    coef = np.where(varies, weights / np.where(varies, scale, 1.0), 0.0)
    return coef, float(wanted.mean() - coef @ mean)
