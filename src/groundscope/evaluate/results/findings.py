"""What a reader must not overlook, said in sentences: controls that beat methods, missing figures, small numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from groundscope.evaluate.metrics.bootstrap import LEAST_SOURCES
from groundscope.evaluate.results.results import Comparison, Row

_FEW_SOURCES = 30
_FEW_POSITIVES = 50


def findings(
    data: Mapping[str, Any], rows: Sequence[Row], comparisons: Sequence[Comparison], levels: Sequence[str]
) -> tuple[str, ...]:
    """Return the sentences: whether there is enough data to tell anything, then controls that beat a method.

    "Clearly" means that the interval of the paired difference does not hold 0.
    """
    found = []
    if data["sources"] < _FEW_SOURCES or min(data["positives"], data["examples"] - data["positives"]) < _FEW_POSITIVES:
        advice = (
            "Intervals and p-values over so few sources say next to nothing."
            if data["sources"] < LEAST_SOURCES
            else "Read the intervals, not the figures."
        )
        found.append(
            f"The data are few: {data['examples']} answers, {data['positives']} of them hallucinated, from "
            f"{data['sources']} sources. {advice}"
        )
    for level in reversed(levels):  # the response level first: it is what most people look at
        for control in rows:
            if control.kind == "control":
                found += _beaten(control, rows, comparisons, level)
    for level in reversed(levels):
        found += _upside_down(rows, level)
        found += _below_flagging_everything(rows, level)
    found += [f"{row.name} has no figures: {row.failure}" for row in rows if row.failure is not None]
    return tuple(found)


def beats(row: Row, rows: Sequence[Row], level: str) -> list[str]:
    """Return the names of the controls whose pooled figure at a level is higher than the row's own, best first."""
    own = _figure(row, level)
    better = [(value, other.name) for other in rows if other.kind == "control" if (value := _figure(other, level))]
    return [name for value, name in sorted(better, reverse=True) if own is not None and value > own]


def _beaten(control: Row, rows: Sequence[Row], comparisons: Sequence[Comparison], level: str) -> list[str]:
    """What one control beats at one level: in one sentence, and in another within generators."""
    metric = "character F1" if level == "span" else "AUROC"
    groups: dict[str, list[str]] = {"clearly beats": [], "is ahead of": []}
    for method in rows:
        if method.kind != "method" or control.name not in beats(method, rows, level):
            continue
        pair = next(
            (c for c in comparisons if (c.level, c.first, c.second) == (level, method.name, control.name)), None
        )
        high = None if pair is None else pair.difference.high
        clear = high is not None and high < 0
        groups["clearly beats" if clear else "is ahead of"].append(f"{method.name} ({_figure(method, level):.3f})")
    parts = [f"{verb} {', '.join(names)}" for verb, names in groups.items() if names]
    found = []
    if parts:
        value = _figure(control, level)
        found.append(f"{level} level: {control.name} ({metric} {value:.3f}) {', and '.join(parts)}.")
    own = _within(control, level)
    inner = [
        f"{method.name} ({value:.3f})"
        for method in rows
        if method.kind == "method" and own is not None and (value := _within(method, level)) is not None and value < own
    ]
    if inner:
        found.append(
            f"{level} level within generators: {control.name} (mean {metric} {own:.3f}) is ahead of {', '.join(inner)}."
        )
    return found


def _upside_down(rows: Sequence[Row], level: str) -> list[str]:
    """Methods that rank clearly worse than chance: their scores say the opposite on these data."""
    names = []
    for row in rows:
        item = row.at(level)
        estimate = None if item is None else item.auroc
        if row.kind == "method" and estimate is not None and estimate.high is not None and estimate.high < 0.5:
            names.append(f"{row.name} ({estimate.value:.3f})")
    return [f"{level} level: upside down on these data, clearly below chance: {', '.join(names)}."] if names else []


def _below_flagging_everything(rows: Sequence[Row], level: str) -> list[str]:
    parts, bar = [], 0.0
    for row in rows:
        item = row.at(level)
        if row.kind != "method" or item is None or item.f1 is None or item.always_positive_f1 is None:
            continue
        value, bar = item.f1.value or 0.0, item.always_positive_f1
        if value < bar:
            parts.append(f"{row.name} ({value:.3f})")
    if not parts:
        return []
    return [f"{level} level: flagging everything has an F1 of {bar:.3f} and beats {', '.join(parts)}."]


def _figure(row: Row, level: str) -> float | None:
    item = row.at(level)
    estimate = None if item is None else (item.f1 if level == "span" else item.auroc)
    return None if estimate is None else estimate.value


def _within(row: Row, level: str) -> float | None:
    macro = row.macro(level, "generator")
    return None if macro is None else macro.unweighted.value
