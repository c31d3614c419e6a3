"""How a detector fares as its context and its settings change (LUMINA, arXiv 2509.21875, figures 2, 5 and 6).

Every setting is measured on the same responses and the same resamples of sources, so that a curve shows the setting
and nothing else. Labels stay as they are: what a response claims may lose its support when a sentence is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from groundscope.analyse.context import drop_sentences, inject_sentences
from groundscope.data.contrast import draw_contrasts
from groundscope.detectors.base import Detector
from groundscope.detectors.learnable import LearnedDetector
from groundscope.errors import GroundscopeError, InputError, check_choice
from groundscope.evaluate.metrics.binary import Curve
from groundscope.evaluate.metrics.bootstrap import Difference, Estimate, Resampler
from groundscope.evaluate.protocol.conditions import ConditionReader
from groundscope.evaluate.protocol.splits import example_sources
from groundscope.example import Example
from groundscope.learn.labels import check_both_classes, response_label
from groundscope.lm.language_model import LanguageModel
from groundscope.lm.prompt.template import PromptTemplate
from groundscope.reading import nothing_to_read
from groundscope.trace.engine import check_support
from groundscope.trace.trace import Trace
from groundscope.trace.traced import TracedExample

Progress = Callable[[Iterable[Example], int], Iterable[Example]]
_SHARES = (0.0, 0.1, 0.2, 0.3)
_KERNELS: tuple[dict[str, Any], ...] = (
    {"kernel": "cosine", "top_k": None},
    {"kernel": "cosine", "top_k": 100},
    *({"kernel": "rbf", "top_k": 100, "sigma": sigma} for sigma in (0.5, 0.7, 1.0, 2.0, 3.0)),
)
AXES: dict[str, tuple[Any, ...]] = {
    "dropped": _SHARES,
    "injected": _SHARES,
    "weight": tuple(step / 10 for step in range(1, 10)),
    "kernel": _KERNELS,
    "documents": (1, 2, 4),
}
"""What can be varied, and the values that it takes: share of the context's sentences dropped, share of them put into
the random document, weight (the paper's lambda), kernel, number of random documents."""


@dataclass(frozen=True)
class Point:
    """One setting on one curve.

    Attributes:
        axis: A name in :data:`AXES`.
        value: Of the setting, as text.
        auroc: Of response scores, with its interval by source.
        auprc: Average precision.
        change: AUROC minus that of the detector as it was given, on the same resamples.
    """

    axis: str
    value: str
    auroc: Estimate
    auprc: Estimate
    change: Difference


@dataclass(frozen=True)
class Robustness:
    """The curves of one detector.

    Attributes:
        detector: As it was given.
        model: The model that read.
        responses: Measured in every setting.
        hallucinated: Those hallucinated.
        sources: Different sources.
        base: Figures of the detector as given.
        points: All settings, axis by axis.
        unread: Responses left out, by reason.
    """

    detector: str
    model: str
    responses: int
    hallucinated: int
    sources: int
    base: Point
    points: tuple[Point, ...]
    unread: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class RobustnessOptions:
    """How curves are measured.

    Attributes:
        template: The prompt around question and passages.
        batch_size: Sequences read at once.
        resamples: Draws of the bootstrap.
        confidence: Of the intervals.
        seed: Of random documents, sentences and resamples.
    """

    template: PromptTemplate = field(default_factory=PromptTemplate)
    batch_size: int = 8
    resamples: int = 1000
    confidence: float = 0.95
    seed: int = 0


@dataclass(frozen=True)
class _Reading:
    """What must be read once; settings that agree in it share it."""

    dropped: float = 0.0
    injected: float = 0.0
    documents: int = 1
    match_length: bool = False


@dataclass(frozen=True, eq=False)
class _Setting:
    axis: str
    value: str
    detector: Detector
    reading: _Reading


def robustness(
    lm: LanguageModel,
    examples: Sequence[Example],
    detector: Detector,
    axes: Sequence[str] | Mapping[str, Sequence[Any]],
    options: RobustnessOptions | None = None,
    *,
    progress: Progress | None = None,
) -> Robustness:
    """Measure a detector along some axes.

    Args:
        lm: The model that reads.
        examples: Labelled responses with passages, of both classes.
        detector: Untrained, or trained on other sources.
        axes: Names in :data:`AXES`, or values by name.
        options: How.
        progress: Wraps the examples to show how far the reading is.

    Raises:
        InputError: If an axis has no meaning for the detector, labels are missing or of one class, nothing could be
            read, or the detector learnt from these examples.
        MismatchError: If the detector learnt from another model.
    """
    options = options or RobustnessOptions()
    settings = check_curves(lm, examples, detector, axes, options.template)
    usable = [example for example in examples if nothing_to_read(example) is None]
    scores: list[list[float]] = []
    read: list[Example] = []
    unread: dict[str, int] = {}
    for example in progress(usable, len(usable)) if progress else usable:
        try:
            traces = _traces(lm, example, usable, settings, options)
            row = [s.detector.response_score(s.detector.token_scores(traces[s.reading])) for s in settings]
        except GroundscopeError as exc:
            reason = str(exc).partition(".")[0]
            unread[reason] = unread.get(reason, 0) + 1
            continue
        if isinstance(detector, LearnedDetector):
            detector.check_unseen([TracedExample(example, traces[settings[0].reading])])
        scores.append(row)
        read.append(example)
    labels = np.array([response_label(example) for example in read], dtype=np.bool_)
    check_both_classes("A robustness curve", labels, "readable response")
    resampler = Resampler(example_sources(read), options.resamples, options.confidence, options.seed)
    table = np.array(scores)
    drawn = [resampler.ranking(resampler.codes, labels, column, 1 << 16) for column in table.T]
    curves = [Curve.of(labels, column) for column in table.T]
    points = [
        Point(
            setting.axis,
            setting.value,
            resampler.estimate(curve.auroc, roc),
            resampler.estimate(curve.auprc, pr),
            resampler.difference(curve.auroc, curves[0].auroc, roc, drawn[0][0]),
        )
        for setting, curve, (roc, pr) in zip(settings, curves, drawn, strict=True)
    ]
    return Robustness(
        repr(detector),
        lm.name,
        len(read),
        int(labels.sum()),
        len(resampler.names),
        points[0],
        tuple(points[1:]),
        unread,
    )


def check_curves(
    lm: LanguageModel,
    examples: Sequence[Example],
    detector: Detector,
    axes: Sequence[str] | Mapping[str, Sequence[Any]],
    template: PromptTemplate,
) -> list[_Setting]:
    """Return what is to be measured, refusing what cannot be before anything is read.

    Raises:
        InputError: See :func:`robustness`.
        MismatchError: Likewise.
        PrerequisiteError: If the detector must learn first.
        UnsupportedModelError: If the model cannot yield what the detector reads.
    """
    settings = _settings(detector, axes)
    if isinstance(detector, LearnedDetector):
        detector.check_fitted()
        detector.check_reader(lm.fingerprint(template))
    check_support(lm, detector.signals)
    labels = [response_label(example) for example in examples if nothing_to_read(example) is None]
    check_both_classes("A robustness curve", np.array(labels, dtype=np.bool_), "response")
    return settings


def _settings(detector: Detector, axes: Sequence[str] | Mapping[str, Sequence[Any]]) -> list[_Setting]:
    """The detector as given, and every setting of every axis."""
    if isinstance(axes, str):
        axes = [axes]
    plain = _Reading(documents=detector.documents, match_length=detector.match_length)
    settings = [_Setting("as given", "", detector, plain)]
    for axis in axes:
        check_choice("robustness", "axes", axis, AXES)
        _check_axis(detector, axis)
        values = axes[axis] if isinstance(axes, Mapping) else AXES[axis]
        for value in values:
            if axis in ("dropped", "injected"):
                reading = _Reading(
                    float(value) if axis == "dropped" else 0.0,
                    float(value) if axis == "injected" else 0.0,
                    plain.documents,
                    plain.match_length,
                )
                settings.append(_Setting(axis, f"{100 * value:g} %", detector, reading))
                continue
            changed = value if isinstance(value, Mapping) else {axis: value}
            other = _varied(detector, changed)
            reading = _Reading(documents=other.documents, match_length=other.match_length)
            text = ", ".join(f"{k}={v}" for k, v in changed.items()) if isinstance(value, Mapping) else f"{value:g}"
            settings.append(_Setting(axis, text, other, reading))
    return settings


def _check_axis(detector: Detector, axis: str) -> None:
    if axis == "injected" and not detector.uses_contrast:
        raise InputError(
            f"The axis 'injected' needs a detector that compares with a random document. Got {detector!r}."
        )
    if axis in ("weight", "kernel", "documents") and axis not in detector.parameters():
        raise InputError(f"The axis {axis!r} needs a detector with that parameter. Got {detector!r}.")
    if axis == "kernel" and getattr(detector, "calibration", "none") != "none":
        raise InputError("The axis 'kernel' needs calibration='none': a calibration holds for the kernel it saw only.")


def _varied(detector: Detector, changed: Mapping[str, Any]) -> Detector:
    """The same detector with other parameters; what it has learnt is kept."""
    made = type(detector)(**{**detector.get_params(), **changed})
    learnt = {name: value for name, value in vars(detector).items() if name.endswith("_")}
    vars(made).update(learnt)
    return made


def _traces(
    lm: LanguageModel,
    example: Example,
    others: Sequence[Example],
    settings: Sequence[_Setting],
    options: RobustnessOptions,
) -> dict[_Reading, Trace]:
    """What one example yields under every reading that a setting needs, each made once."""
    traces = {}
    for reading in dict.fromkeys(setting.reading for setting in settings):
        detectors = [setting.detector for setting in settings if setting.reading == reading]
        traces[reading] = _trace(lm, example, others, reading, detectors, options)
    return traces


def _trace(
    lm: LanguageModel,
    example: Example,
    others: Sequence[Example],
    reading: _Reading,
    detectors: Sequence[Detector],
    options: RobustnessOptions,
) -> Trace:
    signals = tuple(dict.fromkeys(name for detector in detectors for name in detector.signals))
    contrasts: list[tuple[str, ...]] = []
    if detectors[0].uses_contrast:
        drawn = draw_contrasts(example, others, options.seed, reading.documents, match_length=reading.match_length)
        contrasts = [inject_sentences(example, d.passages, reading.injected, options.seed) for d in drawn]
    reader = ConditionReader(lm, signals, options.template, options.batch_size, tuple(detectors[:1]))
    (found,) = reader.read([example], [drop_sentences(example, reading.dropped, options.seed)], [contrasts])
    if not isinstance(found, Trace):
        raise found
    return found
