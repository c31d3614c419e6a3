"""The model card of a trained detector: data, split, figures and controls, as Markdown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from groundscope._version import __version__
from groundscope.evaluate.metrics.bootstrap import Estimate
from groundscope.learn.labels import kind_of
from groundscope.trace.traced import Traced
from groundscope.train.fitting import Figures, Training, cautions


def model_card(training: Training, data: Traced, sources: Sequence[str]) -> str:
    """Return the card.

    Args:
        training: What came out.
        data: All examples that were learnt from or chosen on.
        sources: Names of the files or trace stores they came from.
    """
    detector = training.detector
    fingerprint = detector.fingerprint_
    threshold = detector.threshold_
    measured = {
        "test": "Measured on test examples, which decided nothing.",
        "dev": (
            "Measured on the examples held back from fitting. The thresholds, and whatever this method chooses, were "
            "chosen on the same examples, so these figures are flattering; measure on others with "
            "`groundscope evaluate`."
        ),
    }[training.measured_on]
    lines = [
        "---",
        "library_name: groundscope",
        "tags: [hallucination-detection, rag, groundscope]",
        "---",
        "",
        f"# {detector.name} for {fingerprint.get('model')}",
        "",
        f"{detector.summary[0].upper()}{detector.summary[1:]}. Source: {detector.reference}.",
        f"Made by groundscope {__version__}. A higher score means less supported by the passages.",
        "",
        "## Use",
        "",
        "```python",
        "import groundscope as gs",
        "",
        f'scope = gs.Scope.from_pretrained("{fingerprint.get("model")}", detector="path/to/this/folder")',
        "```",
        "",
        "It scores what this model reads under this template, and refuses any other.",
        "",
        "## Method",
        "",
        f"- Parameters: `{json.dumps(detector.get_params(), ensure_ascii=False)}`",
        f"- Response score: {detector.aggregation}",
        f"- Model: {fingerprint.get('model')} ({fingerprint.get('architecture')}, {fingerprint.get('layers')} layers, "
        f"weights `{fingerprint.get('weights')}`, template `{fingerprint.get('template')}`)",
        "",
        "## Data",
        "",
        f"- Read from: {', '.join(sources)}",
        f"- Data sets: {_counts(item.example.dataset for item in data)}",
        f"- Tasks: {_counts(item.example.task for item in data)}",
        f"- Writers: {_counts(item.example.model for item in data)}",
        f"- Labels: {_counts(kind_of(item.example) for item in data)}",
        f"- Licences: {_counts(item.example.license for item in data)}",
        f"- Learnt from: {training.train}",
        f"- Choices made on: {training.dev}, no source of which is among the former",
    ]
    if training.test is not None:
        lines.append(f"- Measured on: {training.test}, no source of which is among these")
    lines += ["", "## Thresholds", "", f"Objective: {training.objective}, on the examples held back."]
    if threshold is not None:
        lines.append(f"A response is flagged from {threshold.response:.4f}, a span from {threshold.span:.4f}.")
    lines += [f"No {level} threshold met the objective; nothing is flagged at that level." for level in training.unmet]
    lines += ["", "## Figures", "", measured, "Intervals are 95 %, from a bootstrap over sources.", ""]
    lines += _table(training.figures, detector.name)
    warnings = cautions(training)
    if warnings:
        lines += ["", *(f"- **{warning}**" for warning in warnings)]
    return "\n".join(lines) + "\n"


def _counts(values: object) -> str:
    counter = Counter(value or "not said" for value in values)  # type: ignore[attr-defined]
    return ", ".join(f"{name} {count}" for name, count in counter.most_common())


def _table(figures: Sequence[Figures], own: str) -> list[str]:
    rows = [
        "| level | | units | positive | AUROC | AUPRC | precision | recall | F1 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in figures:
        name = f"**{row.name}**" if row.name == own else f"control: {row.name}"
        cells = [row.level, name, str(row.units), str(row.positives), interval(row.auroc), interval(row.auprc)]
        cells += ["" if value is None else f"{value:.3f}" for value in (row.precision, row.recall, row.f1)]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def interval(estimate: Estimate) -> str:
    """Return a figure with its interval, in words for people."""
    if estimate.value is None:
        return "not defined"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.3f}"
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"
