"""Thresholds of untrained detectors: how high scores go on text that is known to be faithful.

The package ships a small sample of faithful answers (RAGTruth, MIT). A model reads it once; what nine in
ten of them stay below, and nineteen in twenty of their tokens, is where the lines are
drawn. The embedded default model's numbers are shipped.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections import ChainMap
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from groundscope.data.contrast import draw_contrasts
from groundscope.detectors.learnable import LearnedDetector
from groundscope.errors import GroundscopeError, PrerequisiteError
from groundscope.example import Example
from groundscope.lm.loading.cache import cache_dir
from groundscope.text.spans import smooth
from groundscope.trace.engine import trace_each
from groundscope.trace.trace import Trace
from groundscope.verdict_parts import Threshold, is_threshold

if TYPE_CHECKING:
    from groundscope.detectors.base import Detector
    from groundscope.lm.language_model import LanguageModel
    from groundscope.lm.prompt.template import PromptTemplate

# Share of faithful answers that are flagged, and share of their tokens that are marked.
FALSE_ALARMS = 0.1
FALSE_MARKS = 0.05
_FORMAT = 2
_log = logging.getLogger(__name__)


def reference_sample() -> tuple[Example, ...]:
    """Return the shipped sample of faithful answers."""
    text = resources.files("groundscope.data").joinpath("faithful_sample.jsonl").read_text(encoding="utf-8")
    return tuple(Example.from_dict(json.loads(line)) for line in text.splitlines() if line.strip())


def reference_threshold(lm: LanguageModel, detector: Detector, template: PromptTemplate) -> Threshold:
    """Return where to draw the lines for an untrained detector.

    Looks in the shipped table, then in the user's cache; else the model reads the sample, which takes a
    while once, and the result is kept in the cache.

    Raises:
        PrerequisiteError: If the model can read none of the sample.
    """
    key = threshold_key(lm, detector, template)
    shipped = json.loads(resources.files("groundscope.data").joinpath("thresholds.json").read_text(encoding="utf-8"))
    if key in shipped:
        return Threshold(**shipped[key])
    path = _path(key)
    kept = None if path is None else _kept(path)
    if kept is not None:
        return kept
    _log.warning(
        "No threshold is known for %s under %s: reading a sample of faithful answers once. "
        "Give a threshold to skip this.",
        detector.name,
        lm.name,
    )
    threshold = measure_threshold(lm, detector, template, reference_sample())
    if path is not None:
        _keep(path, threshold)
    return threshold


def measure_threshold(
    lm: LanguageModel, detector: Detector, template: PromptTemplate, sample: Sequence[Example]
) -> Threshold:
    """Let a model read faithful answers and draw the lines above nine in ten of them.

    Raises:
        PrerequisiteError: If it can read none of them.
    """
    traces = read_sample(lm, [detector], template, sample)
    if not traces:
        raise PrerequisiteError(f"{lm.name} could read none of the reference sample; give a threshold yourself.")
    return draw_lines(detector, traces, lm.name)


def read_sample(
    lm: LanguageModel, detectors: Sequence[Detector], template: PromptTemplate, sample: Sequence[Example]
) -> list[Trace]:
    """Let a model read faithful answers for some detectors, against the built-in pool of random documents.

    What it cannot read is skipped.

    Raises:
        PrerequisiteError: If something that a detector gathers with is missing.
    """
    renderer = lm.renderer(template)
    signals = tuple(dict.fromkeys(name for detector in detectors for name in detector.signals))
    documents = max([1, *(detector.documents for detector in detectors)])
    items, layouts, traces = [], [], []
    for item in sample:
        try:
            drawn = draw_contrasts(item, count=documents)
            layouts.append(renderer.layout(item, [document.passages for document in drawn]))
            items.append(item)
        except GroundscopeError as exc:
            _log.info("Left %s out of the reference sample: %s", item.id, exc)
    for item, trace in zip(items, trace_each(lm, layouts, signals), strict=True):
        if isinstance(trace, Trace):
            try:
                own = [detector.gather(lm, item, trace.layout) for detector in detectors if detector.own_signals]
            except PrerequisiteError:
                raise
            except GroundscopeError as exc:
                _log.info("Left %s out of the reference sample: %s", item.id, exc)
                continue
            traces.append(replace(trace, signals={**trace.signals, **ChainMap(*map(dict, own))}))
    return traces


def draw_lines(detector: Detector, traces: Sequence[Trace], model: str) -> Threshold:
    """Draw the lines above nine in ten faithful answers, and above nineteen in twenty of their tokens and sentences."""
    judged = [judgement for trace in traces if (judgement := detector.judge(trace)) is not None]
    sentences = [item.score for judgement in judged for item in judgement.sentences]
    if judged:
        responses = [judgement.score for judgement in judged]
    else:
        responses = [detector.response_score(detector.token_scores(trace)) for trace in traces]
    stretches = np.concatenate([smooth(detector.span_scores(trace), detector.window) for trace in traces])
    return Threshold(
        response=float(np.quantile(responses, 1 - FALSE_ALARMS)),
        span=float(np.nanquantile(stretches, 1 - FALSE_MARKS)),
        source=(
            f"{len(traces)} faithful answers read by {model}: {FALSE_ALARMS:.0%} of them would be flagged, "
            f"{FALSE_MARKS:.0%} of their tokens {'and sentences ' if sentences else ''}marked"
        ),
        sentence=float(np.quantile(sentences, 1 - FALSE_MARKS)) if sentences else None,
    )


def threshold_key(lm: LanguageModel, detector: Detector, template: PromptTemplate) -> str:
    """Name of a measured threshold: everything that moves the scores."""
    sample = hashlib.sha256("".join(item.response for item in reference_sample()).encode()).hexdigest()
    # A copy of a model under another name, or in another folder, scores alike.
    fingerprint = {name: value for name, value in lm.fingerprint(template).items() if name != "model"}
    content: dict[str, Any] = {
        "format": _FORMAT,
        "fingerprint": fingerprint,
        "detector": detector.name,
        "params": detector.get_params(),
        "window": detector.window,
        "sample": sample,
    }
    if isinstance(detector, LearnedDetector) and detector.is_fitted:
        arrays, facts = detector.state()
        content["learnt"] = [facts, {name: array.tobytes().hex() for name, array in sorted(arrays.items())}]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=repr).encode()).hexdigest()[:16]
    return f"{detector.name}-{digest}"


def _path(key: str) -> Path | None:
    try:
        return cache_dir() / "thresholds" / f"{key}.json"
    except GroundscopeError:
        return None


def _kept(path: Path) -> Threshold | None:
    """Return the threshold kept in a file; ``None`` where there is none or the file is damaged."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        threshold = Threshold(**record)
    except (OSError, ValueError, TypeError):
        return None
    return threshold if is_threshold(threshold) else None


def _keep(path: Path, threshold: Threshold) -> None:
    """Write a measured threshold; a cache that cannot be written costs time, not the result."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False, encoding="utf-8") as file:
            json.dump(asdict(threshold), file)
        Path(file.name).replace(path)
    except OSError as exc:
        _log.warning("The threshold could not be kept in %s: %s.", path, exc)
