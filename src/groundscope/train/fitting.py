"""Fit a detector, draw its lines on examples it did not learn from, and measure it beside the controls."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from groundscope.detectors.base import describe
from groundscope.detectors.learnable import (
    LearnedDetector,
    check_disjoint,
    check_distinct,
    check_examples,
    check_traced,
)
from groundscope.errors import GroundscopeError, InputError
from groundscope.evaluate.metrics.binary import auprc, auroc, count
from groundscope.evaluate.metrics.bootstrap import LEAST_SOURCES, Estimate, Resampler
from groundscope.evaluate.protocol.controls import controls
from groundscope.evaluate.protocol.scoring import Candidate, DetectorCandidate, score_all, score_example
from groundscope.evaluate.protocol.splits import Indices, carve, check_separate, example_sources, sources
from groundscope.evaluate.protocol.thresholds import Objective
from groundscope.evaluate.protocol.units import Truth, choose_lines
from groundscope.example import Example
from groundscope.learn.labels import response_label
from groundscope.trace.traced import Traced, examples_of
from groundscope.verdict import Threshold

LEVELS = ("response", "window", "token")
_ONE_CLASS = "No threshold can be chosen: the examples held back are of one class. Add examples of the other class."
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Size:
    """How much of something there is."""

    examples: int
    hallucinated: int
    sources: int

    @classmethod
    def of(cls, data: Traced) -> Size:
        """Count examples."""
        labels = [response_label(item.example) for item in data]
        return cls(len(data), sum(labels), len(set(sources(data))))

    def __str__(self) -> str:
        sources = "1 source" if self.sources == 1 else f"{self.sources} sources"
        return f"{self.examples} examples ({self.hallucinated} hallucinated) from {sources}"


@dataclass(frozen=True)
class Figures:
    """What was measured of one row at one level.

    Attributes:
        name: Of the detector or control.
        level: ``response``, ``window`` or ``token``.
        units: How many.
        positives: How many of them hallucinated.
        auroc: With its interval, clustered by source.
        auprc: Likewise.
        precision: At the detector's threshold; ``None`` for controls and levels without one.
        recall: Likewise.
        f1: Likewise.
    """

    name: str
    level: str
    units: int
    positives: int
    auroc: Estimate
    auprc: Estimate
    precision: float | None = None
    recall: float | None = None
    f1: float | None = None


@dataclass(frozen=True)
class Training:
    """A fitted detector and how it came about.

    Attributes:
        detector: Fitted, with its threshold.
        objective: What the threshold was to achieve.
        train: What it learnt from.
        dev: What its choices were made on.
        test: What it was measured on besides, if anything.
        unmet: Levels at which no threshold met the objective.
        figures: Measured on ``measured_on``.
        measured_on: ``test``, or ``dev`` where there is no test: then choices were made on the same examples.
    """

    detector: LearnedDetector
    objective: Objective
    train: Size
    dev: Size
    test: Size | None
    unmet: tuple[str, ...]
    figures: tuple[Figures, ...]
    measured_on: str


def train_detector(
    detector: LearnedDetector,
    data: Traced,
    dev: Traced | None = None,
    test: Traced | None = None,
    *,
    objective: Objective | str = "f1",
    dev_share: float = 0.2,
    seed: int = 0,
) -> Training:
    """Fit a detector and choose its thresholds.

    Args:
        detector: What is to learn; its parameters are its own.
        data: Labelled examples to learn from.
        dev: Others, from other sources, to choose on; without them a part of ``data`` is held back by source.
        test: Others still, to measure on only.
        objective: ``f1``, ``precision:P`` or ``fpr:Q``; see
            :class:`groundscope.evaluate.protocol.thresholds.Objective`.
        dev_share: Share held back where there is no ``dev``.
        seed: Of that draw.

    Raises:
        InputError: If labels are missing, too coarse or of one class, or sets share a source.
    """
    if not isinstance(detector, LearnedDetector):
        raise InputError(f"The detector {getattr(detector, 'name', detector)!r} does not learn; use it as it is.")
    goal = Objective.parse(objective) if isinstance(objective, str) else objective
    items = check_traced(detector, data)
    further = [None if part is None else examples_of(part) for part in (dev, test)]
    large, small = plan_training(detector, examples_of(items), *further, dev_share=dev_share, seed=seed)
    train: Traced = [items[i] for i in large]
    if dev is None:
        dev = [items[i] for i in small]
    try:
        detector.fit(train, dev)
    except GroundscopeError:
        raise
    except Exception as exc:  # whatever a foreign detector raises
        raise InputError(f"The detector {detector.name!r} failed in fit: {describe(exc)}.") from exc
    unmet = draw_lines(detector, dev, goal)
    measured = dev if test is None else test
    return Training(
        detector=detector,
        objective=goal,
        train=Size.of(train),
        dev=Size.of(dev),
        test=None if test is None else Size.of(test),
        unmet=unmet,
        figures=tuple(measure(detector, measured, train, dev)),
        measured_on="dev" if test is None else "test",
    )


def plan_training(
    detector: LearnedDetector,
    data: Sequence[Example],
    dev: Sequence[Example] | None = None,
    test: Sequence[Example] | None = None,
    *,
    dev_share: float = 0.2,
    seed: int = 0,
) -> tuple[Indices, Indices]:
    """Refuse what a detector cannot learn from; asks the examples alone, so it can come before a model reads them.

    Args:
        detector: See :func:`train_detector`; likewise the rest.
        data: Labelled examples to learn from.
        dev: Others to choose on.
        test: Others still to measure on.
        dev_share: Share held back where there is no ``dev``.
        seed: Of that draw.

    Returns:
        Positions in ``data`` to learn from and to choose on; the latter are none where there is a ``dev``.

    Raises:
        InputError: See :func:`train_detector`.
    """
    check_examples(detector, data)
    for part in (data, dev or (), test or ()):
        check_distinct(part)
    if test is not None and not test:
        raise InputError("There is no example to measure on: none of the test set could be read.")
    large: Indices = np.arange(len(data), dtype=np.int64)
    small: Indices = np.arange(0, dtype=np.int64)
    if dev is None:
        labels = np.array([response_label(example) for example in data])
        large, small = carve(labels, np.array(example_sources(data)), large, dev_share, seed)
    held = [[data[i] for i in small] if dev is None else dev, *([] if test is None else [test])]
    for place, one in enumerate([[data[i] for i in large], *held]):
        for other in held[place:]:
            check_disjoint(one, other)
            check_separate(one, other)
    if dev is not None:
        check_examples(detector, dev)
    return large, small


def check_lines(dev: Sequence[Example]) -> None:
    """Refuse examples that no threshold can be chosen on, before they are read.

    Raises:
        InputError: If they are of one class.
    """
    if len({response_label(example) for example in dev}) < 2:
        raise InputError(_ONE_CLASS)


def draw_lines(detector: LearnedDetector, dev: Traced, objective: Objective) -> tuple[str, ...]:
    """Set a fitted detector's threshold; returns the levels at which the objective was not met.

    Raises:
        InputError: If the examples are of one class.
    """
    scores = [score_example(detector, item) for item in dev]
    lines = choose_lines(Truth(dev), scores, np.arange(len(dev)), objective)
    if lines.response is None:
        raise InputError(_ONE_CLASS)
    span = lines.span
    if span is None:
        span = lines.response if detector.neutral is None else detector.neutral
    detector.threshold_ = Threshold(lines.response, span, f"{len(dev)} held-out examples (objective {objective})")
    unmet = tuple(level for level in lines.unmet if level in ("response", "span"))
    for level in unmet:
        _log.warning("No %s threshold meets the objective %s on the held-out examples.", level, objective)
    return unmet


def measure(detector: LearnedDetector, data: Traced, train: Traced, dev: Traced) -> list[Figures]:
    """Measure a fitted detector and the controls on the same units, best first at each level."""
    truth, resampler = Truth(data), Resampler(sources(data))
    found = []
    rows: list[Candidate] = [DetectorCandidate(detector.name, detector), *controls(data)]
    for candidate in rows:
        scored = score_all(candidate.fitted(train, dev), data)
        for level in LEVELS:
            places = [int(i) for i in truth.fit_for(level) if scored.items[int(i)] is not None]
            units = [(i, truth.labels(level, i), truth.unit_scores(level, i, scored.items[i])) for i in places]  # type: ignore[arg-type]
            if not units:
                continue
            labels = np.concatenate([part for _, part, _ in units])
            values = np.concatenate([part for _, _, part in units])
            if not 0 < labels.sum() < len(labels):
                continue
            codes = np.concatenate([np.full(len(part), resampler.codes[i]) for i, part, _ in units])
            roc, pr = resampler.ranking(codes, labels, values)
            line = detector.threshold_ if level == "response" and candidate is rows[0] else None
            counts = None if line is None else count(labels, values >= line.response)
            found.append(
                Figures(
                    candidate.name,
                    level,
                    len(labels),
                    int(labels.sum()),
                    resampler.estimate(auroc(labels, values), roc),
                    resampler.estimate(auprc(labels, values), pr),
                    None if counts is None else counts.precision,
                    None if counts is None else counts.recall,
                    None if counts is None else counts.f1,
                )
            )
    return sorted(found, key=lambda row: (LEVELS.index(row.level), -(row.auroc.value or 0.0)))


def cautions(training: Training) -> list[str]:
    """Return what speaks against trusting a detector: few examples to choose on, and controls that do as well."""
    found = []
    if training.dev.sources < LEAST_SOURCES:
        found.append(
            f"The thresholds were chosen on {training.dev}: too few to rely on. Learn from hundreds of answers."
        )
    name = training.detector.name
    own = {row.level: row.auroc.value for row in training.figures if row.name == name}
    for level, value in own.items():
        better = [
            f"'{row.name}' {row.auroc.value:.3f}"
            for row in training.figures
            if row.level == level
            and row.name != name
            and row.auroc.value is not None
            and row.auroc.value >= (value or 1)
        ]
        if better:
            found.append(
                f"At {level} level, controls reach an AUROC of {', '.join(better)}; this detector "
                f"{'none' if value is None else f'{value:.3f}'}: it has not shown more than they."
            )
    return found
