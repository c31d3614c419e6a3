"""Scores of detectors and controls on examples: fitted per fold where they learn, checked, never trusted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from groundscope.detectors.base import Detector, describe
from groundscope.detectors.learnable import LearnedDetector
from groundscope.errors import GroundscopeError, InputError, PrerequisiteError, is_finite
from groundscope.evaluate.metrics.binary import Floats
from groundscope.learn.windows import window_ranges
from groundscope.text.spans import smooth
from groundscope.trace.traced import Traced, TracedExample

# Tokens in a window, as in Lookback Lens and AggTruth; windows are one token apart.
WINDOW = 8


@dataclass(frozen=True, eq=False)
class ExampleScore:
    """What is said about one response.

    Attributes:
        tokens: (token,) scores.
        stretches: (token,) scores out of which spans are cut.
        response: Score of the whole.
        windows: (window,) scores of sliding windows of eight; ``None`` if they are to be means of token scores.
    """

    tokens: Floats
    stretches: Floats
    response: float
    windows: Floats | None = None


Scorer = Callable[[TracedExample], ExampleScore]


class Candidate(ABC):
    """What is measured: a detector or a control.

    Attributes:
        kind: ``method`` or ``control``.
        name: Of its row.
    """

    kind: ClassVar[str]
    name: str

    @property
    @abstractmethod
    def fitting(self) -> str:
        """``untrained``, ``cross-fitted`` (learns in every fold anew) or ``loaded`` (learnt before)."""

    @abstractmethod
    def fitted(self, train: Traced, dev: Traced) -> Scorer:
        """Return what scores an example, after learning from these alone."""

    @property
    def params(self) -> dict[str, Any]:
        """Settings, as plain JSON values."""
        return {}

    def line(self) -> tuple[float, float] | None:
        """Thresholds of response and span that it brings along; ``None`` if they are to be chosen on dev."""
        return None


class DetectorCandidate(Candidate):
    """A detector as a candidate.

    Args:
        name: Of its row.
        detector: A rule; an unfitted probe, which is made anew and fitted in every fold; or a fitted one.
    """

    kind = "method"

    def __init__(self, name: str, detector: Detector) -> None:
        self.name = name
        self.detector = detector
        self.last: Detector = detector

    @property
    def fitting(self) -> str:
        """How it gets to know its weights."""
        if not isinstance(self.detector, LearnedDetector):
            return "untrained"
        if self.detector.is_fitted:
            return "loaded"
        try:
            self.detector.check_fitted()
        except PrerequisiteError:
            return "cross-fitted"
        return "untrained"  # it could learn, but as it is set up it need not

    @property
    def params(self) -> dict[str, Any]:
        """The constructor's arguments; what is no JSON value, in words."""
        given = self.detector.get_params()
        return {
            name: value if value is None or isinstance(value, (str, bool)) or is_finite(value) else repr(value)
            for name, value in given.items()
        }

    def line(self) -> tuple[float, float] | None:
        """Thresholds of a loaded detector."""
        threshold = getattr(self.detector, "threshold_", None) if self.fitting == "loaded" else None
        return None if threshold is None else (threshold.response, threshold.span)

    def fitted(self, train: Traced, dev: Traced) -> Scorer:
        """Return what scores an example; :attr:`last` is the detector behind it."""
        if isinstance(self.detector, LearnedDetector) and self.fitting == "cross-fitted":
            fresh = type(self.detector)(**self.detector.get_params())
            self.last = fresh.fit(train, dev)
        detector = self.last
        return lambda item: score_example(detector, item)

    def check_loaded(self, data: Traced) -> None:
        """Refuse to measure a loaded detector on what it learnt from, as far as known, or on another model's traces.

        Raises:
            InputError: If an example's id or source is among those it was trained on.
            MismatchError: If another model, tokenizer or template read the examples.
        """
        if not isinstance(self.detector, LearnedDetector) or self.fitting != "loaded":
            return
        for fingerprint in {id(item.trace.fingerprint): item.trace.fingerprint for item in data}.values():
            self.detector.check_reader(fingerprint)
        self.detector.check_unseen(data)


def score_example(detector: Detector, item: TracedExample) -> ExampleScore:
    """Score one example.

    A detector that has a score of its own for windows says so by a method ``window_scores(trace, ranges)``, which
    gets (window, 2) token ranges and returns (window,) scores.

    Raises:
        InputError: If the detector returns anything but finite numbers of the right shape.
    """
    if isinstance(detector, LearnedDetector):
        detector.check_fitted()
    tokens = _checked(detector, "token_scores", detector.token_scores(item.trace), item.trace.tokens)
    bare = _checked(detector, "span_scores", detector.span_scores(item.trace), item.trace.tokens)
    response = detector.response_score(tokens)
    if not is_finite(response):
        raise InputError(
            f"The detector {detector.name!r} must return a finite number from response_score. Got {response!r} instead."
        )
    offer = getattr(detector, "window_scores", None)
    windows = None
    if callable(offer):
        ranges = window_ranges(item.trace.tokens, WINDOW)
        windows = _checked(detector, "window_scores", offer(item.trace, ranges), len(ranges))
    return ExampleScore(tokens, smooth(bare, detector.window), float(response), windows)


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of many examples; ``None`` where there is none, and why.

    Attributes:
        items: One per example asked for.
        failures: (position, reason) of those that could not be scored.
    """

    items: list[ExampleScore | None]
    failures: list[tuple[int, str]]


def score_all(scorer: Scorer, data: Traced) -> Scores:
    """Score examples; one that fails does not lose the others."""
    items: list[ExampleScore | None] = []
    failures = []
    for position, item in enumerate(data):
        try:
            items.append(scorer(item))
        except Exception as exc:  # whatever a foreign detector raises
            items.append(None)
            failures.append((position, reason(exc)))
    return Scores(items, failures)


def reason(exc: Exception) -> str:
    """Return an error in words: our own as they are, others with their kind."""
    return str(exc) if isinstance(exc, GroundscopeError) else describe(exc)


def candidates(detectors: Collection[Detector] | dict[str, Detector]) -> list[DetectorCandidate]:
    """Name detectors by their registry name, with the parameters or a number where that is not unique.

    Raises:
        InputError: If there is none, or something is no detector.
    """
    pairs = list(detectors.items()) if isinstance(detectors, dict) else [("", item) for item in detectors]
    if not pairs:
        raise InputError("There must be at least one detector to measure. Got none.")
    for _, detector in pairs:
        if not isinstance(detector, Detector):
            raise InputError(f"Detectors to measure must be Detector instances. Got {detector!r} instead.")
    plain = [name or detector.name for name, detector in pairs]
    full = [
        name or (detector.name if plain.count(detector.name) == 1 else f"{detector.name}{_arguments(detector)}")
        for name, detector in pairs
    ]
    numbered = [name if full.count(name) == 1 else f"{name} #{full[:i].count(name) + 1}" for i, name in enumerate(full)]
    return [DetectorCandidate(name, detector) for name, (_, detector) in zip(numbered, pairs, strict=True)]


def _arguments(detector: Detector) -> str:
    shown = ", ".join(f"{name}={value!r}" for name, value in detector.get_params().items())
    return f"({shown})" if shown else ""


def _checked(detector: Detector, method: str, given: object, size: int) -> Floats:
    array = np.asarray(given)
    if array.dtype.kind not in "fiu" or array.shape != (size,) or not np.isfinite(array).all():
        raise InputError(
            f"The detector {detector.name!r} must return ({size},) finite numbers from {method}. "
            f"Got shape {array.shape}, type {array.dtype}, with NaN or infinity or of another shape."
        )
    return array.astype(np.float64)
