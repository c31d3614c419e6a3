"""What Lookback Lens, AggTruth and the hidden-state probe share: a linear probe on means over units of tokens."""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit

from groundscope.detectors.base import Detector, Scores
from groundscope.detectors.learnable import Arrays, LearnedDetector
from groundscope.errors import InputError, check_choice, check_count
from groundscope.learn.labels import ALL_KINDS, FINE_KINDS, check_both_classes, response_label, token_labels
from groundscope.learn.probe import LinearProbe
from groundscope.learn.units import Units, listed_units, response_unit, run_units, window_units
from groundscope.learn.windows import Ranges, spread, window_means, window_ranges
from groundscope.trace.trace import Trace
from groundscope.trace.traced import Traced, TracedExample

_log = logging.getLogger(__name__)
UNITS = ("window", "span", "response")
POOLING = ("mean", "max")
VARIANTS = ("paper", "official")
# Probabilities nearer to 0 or 1 than this have no logarithm of their odds.
_EDGE = 2.0**-53


class WindowedProbe(LearnedDetector):
    """A linear probe on the mean features of units of tokens; token scores are probabilities of hallucination.

    What a token is given depends on the unit that was learnt from:

    - ``window`` and ``span``: the mean probability of the sliding windows that hold the token. A response
      shorter than a window is one window.
    - ``response``: the probability at the token's own features; the response score is the probability at the
      mean features of all tokens.

    Subclasses store ``units``, ``window_size``, ``stride``, ``variant`` and ``pooling``.

    Attributes:
        probe_: The fitted probe.
        shape_: Axes of one token's features: (layer, head) or (channel,).
        units_: How many units it learnt from, and how many of these were hallucinated.
    """

    neutral: ClassVar[float | None] = 0.5
    units: str
    window_size: int
    stride: int
    variant: str
    pooling: str
    probe_: LinearProbe
    shape_: tuple[int, ...]
    units_: tuple[int, int]

    @property
    @abstractmethod
    def signal(self) -> str:
        """Name of the signal whose values are the features."""

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that it reads."""
        return (self.signal,)

    @property
    def label_kinds(self) -> tuple[str, ...]:  # type: ignore[override]
        """Kinds of labels that it may learn from: those of its unit."""
        return ALL_KINDS if self.units == "response" else FINE_KINDS

    @property
    def window(self) -> int:  # type: ignore[override]
        """Tokens over which spans are smoothed: less where windows have done so already."""
        if self.units == "response":
            return Detector.window
        return max(1, Detector.window // (2 * self.window_size - 1))

    @property
    def aggregation(self) -> str:  # type: ignore[override]
        """How token scores become the response score, in words."""
        if self.units == "response":
            return "probability at the mean features"
        return f"{self.pooling} over tokens"

    @abstractmethod
    def _new_probe(self) -> LinearProbe:
        """Return the probe to be fitted."""

    def _extra(self, trace: Trace) -> npt.NDArray[np.floating[Any]] | None:
        """Return further features, (token, feature), or ``None``."""
        return None

    def features(self, trace: Trace) -> npt.NDArray[np.floating[Any]]:
        """Return the features of every response token, (token, feature)."""
        values = trace[self.signal].reshape(trace.tokens, -1)
        extra = self._extra(trace)
        return values if extra is None else np.concatenate([values, extra], axis=1)

    def token_scores(self, trace: Trace) -> Scores:
        """Score every response token: a probability, 0.5 is neutral.

        Raises:
            PrerequisiteError: If it was not fitted.
            InputError: If the trace has other layers, heads or channels than it learnt from.
        """
        self.check_fitted()
        shape = trace[self.signal].shape[1:]
        if shape != self.shape_:
            raise InputError(
                f"The detector {self.name!r} learnt from {_axes(self.shape_)} and this trace has {_axes(shape)}. "
                "Read with the model that it was trained with, or train it again."
            )
        log_odds = self.probe_.decision(self.features(trace))
        if self.units == "response":
            return np.asarray(expit(log_odds), dtype=np.float64)
        # The probe is linear: its value at a window's mean features is the mean of its values.
        ranges = window_ranges(trace.tokens, self.window_size, self.stride)
        return spread(expit(window_means(log_odds, ranges)), ranges, trace.tokens)

    def window_scores(self, trace: Trace, ranges: Ranges) -> Scores:
        """Return the probability at the mean features of each token range, (window,)."""
        self.check_fitted()
        return np.asarray(expit(window_means(self.probe_.decision(self.features(trace)), ranges)), dtype=np.float64)

    def head_weights(self) -> Scores | None:
        """Return the (layer, head) weights of unscaled features; ``None`` where the features are no heads."""
        if len(self.shape_) != 2:
            return None
        return self.probe_.coef_[: math.prod(self.shape_)].reshape(self.shape_)

    def response_score(self, scores: Scores) -> float:
        """Return the score of a response from its (token,) scores; NaN entries do not count.

        For ``units='response'`` it is the probability at the mean features, as long as no token's probability
        is within 1e-16 of 0 or 1.
        """
        if self.units == "response":
            return float(expit(np.nanmean(logit(np.clip(scores, _EDGE, 1 - _EDGE)))))
        return float(np.nanmax(scores) if self.pooling == "max" else np.nanmean(scores))

    def _fit(self, data: Traced, dev: Traced | None) -> None:
        features, labels, skipped = [], [], 0
        shape = data[0].trace[self.signal].shape[1:]
        for item in data:
            if item.trace[self.signal].shape[1:] != shape:
                raise InputError(
                    f"All traces must have the same features. Example {item.example.id!r} has "
                    f"{_axes(item.trace[self.signal].shape[1:])}, the first one {_axes(shape)}."
                )
            units = self._units(item)
            if units is None:
                skipped += 1
            else:
                features.append(units.means(self.features(item.trace)))
                labels.append(units.labels)
        if skipped:
            _log.warning("%s: %d hallucinated responses without a marked token were left out", self.name, skipped)
        targets = np.concatenate([np.zeros(0, dtype=np.bool_), *labels])
        check_both_classes(self.name, targets, self.units)
        probe = self._new_probe().fit(np.concatenate(features), targets)
        self.probe_, self.shape_ = probe, tuple(shape)
        self.units_ = len(targets), int(np.count_nonzero(targets))

    def _units(self, item: TracedExample) -> Units | None:
        """Cut one response; ``None`` if it is hallucinated and nobody said where."""
        example, layout = item.example, item.trace.layout
        if self.units == "response":
            return response_unit(response_label(example), item.trace.tokens)
        marked = token_labels(example, layout)
        if response_label(example) and not marked.any():
            return None
        official = self.variant == "official"
        if self.units == "span":
            return listed_units(example, layout) if official else run_units(marked)
        return window_units(marked, self.window_size, self.stride, partial=not official)

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return what was learnt: weights, and facts as plain JSON values."""
        self.check_fitted()
        arrays, facts = self.probe_.state()
        return arrays, {**facts, "shape": list(self.shape_), "units": list(self.units_)}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` returned.

        Raises:
            InputError: If the weights do not fit the shape of the features.
        """
        probe = LinearProbe()
        probe.restore(arrays, facts)
        shape = tuple(int(size) for size in facts["shape"])
        count, hallucinated = (int(number) for number in facts["units"])
        if len(probe.coef_) != math.prod(shape) + self._extra_count:
            raise InputError(
                f"The probe of {self.name!r} has {len(probe.coef_)} weights, which do not fit {_axes(shape)}."
            )
        self.probe_, self.shape_, self.units_ = probe, shape, (count, hallucinated)

    @property
    def _extra_count(self) -> int:
        """Features beside those of the signal."""
        return 0


def check_units(
    owner: str, units: object, window_size: object, stride: object, variant: object, pooling: object
) -> None:
    """Refuse parameters of units that make no sense.

    Raises:
        InputError: If one does not.
    """
    check_choice(owner, "units", units, UNITS)
    check_count(owner, "window_size", window_size)
    check_count(owner, "stride", stride)
    check_choice(owner, "variant", variant, VARIANTS)
    check_choice(owner, "pooling", pooling, POOLING)
    if stride > window_size:  # type: ignore[operator]
        raise InputError(
            f"The 'stride' parameter of {owner} must be at most window_size={window_size}, "
            f"or some tokens lie in no window. Got {stride!r} instead."
        )


def _axes(shape: tuple[int, ...]) -> str:
    return f"{shape[0]} layers of {shape[1]} heads" if len(shape) == 2 else f"{shape[0]} channels"
