"""From held-out scores to figures with intervals: pooled, by task, by generator, by data set, and their means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from groundscope.evaluate.metrics.binary import Counts, Curve, Floats, always_positive_f1, pearson
from groundscope.evaluate.metrics.bootstrap import Estimate, Resampler
from groundscope.evaluate.protocol.crossfit import Scored
from groundscope.evaluate.protocol.units import LEVELS, Truth, Units, gather
from groundscope.evaluate.results.results import POOLED, Comparison, Macro, Measured, Row
from groundscope.example import Example
from groundscope.trace.traced import Traced

# Distinct scores that resamples keep apart: all of them for responses, a grid of quantiles for the many tokens.
_BINS = {"response": 1 << 16, "window": 256, "token": 256}
SLICINGS: dict[str, Callable[[Example], str | None]] = {
    "task": lambda example: example.task,
    "generator": lambda example: example.model,
    "dataset": lambda example: example.dataset,
}
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Drawn:
    """A figure and its value in every resample."""

    value: float
    draws: Floats
    units: int


@dataclass(eq=False)
class Meter:
    """Measures candidates on the same held-out examples and the same resamples.

    Attributes:
        truth: The examples and their labels.
        resampler: Draws sources; its codes are per example.
        rows: Positions of the held-out examples.
        levels: Levels to measure.
    """

    truth: Truth
    resampler: Resampler
    rows: Rows
    levels: tuple[str, ...] = LEVELS
    _drawn: dict[tuple[str, str], tuple[Rows, _Drawn]] = field(default_factory=dict)

    def row(self, scored: Scored) -> Row:
        """Return all figures of one candidate."""
        candidate = scored.candidate
        bare = Row(candidate.name, candidate.kind, candidate.fitting, candidate.params, lines=tuple(scored.folds))
        if scored.failure is not None:
            return replace(bare, lines=(), failure=scored.failure)
        measured: list[Measured] = []
        macros: list[Macro] = []
        for level in self.levels:
            units = gather(self.truth, level, scored.scores, scored.lines, self.rows)
            if not units.size:
                continue
            figures, drawn = self._measure(units, POOLED, "")
            measured.append(figures)
            if drawn is not None:
                self._drawn[candidate.name, level] = (np.unique(units.example), drawn)
            for by, of in SLICINGS.items():
                parts = []
                for name, part in _slices(units, self.truth.data, of):
                    figures, inner = self._measure(part, by, name)
                    measured.append(figures)
                    if inner is not None:
                        parts.append(inner)
                if parts:
                    macros.append(self._macro(level, by, parts))
        return replace(
            bare,
            measured=tuple(measured),
            macros=tuple(macros),
            unscored=len(scored.failures),
            notes=tuple(_notes(scored, measured, self.levels)),
        )

    def comparisons(self, rows: Sequence[Row]) -> list[Comparison]:
        """Compare every method with every other row measured on the same examples, at every level."""
        found = []
        for level in self.levels:
            for i, first in enumerate(rows):
                for second in rows[i + 1 :]:
                    if first.kind == "method" and (pair := self._pair(level, first.name, second.name)) is not None:
                        found.append(pair)
        return found

    def _pair(self, level: str, first: str, second: str) -> Comparison | None:
        one, other = self._drawn.get((first, level)), self._drawn.get((second, level))
        if one is None or other is None or not np.array_equal(one[0], other[0]):
            return None  # not on the same examples: no pair
        gap = self.resampler.difference(one[1].value, other[1].value, one[1].draws, other[1].draws)
        return Comparison(level, metric_of(level), first, second, gap.estimate, gap.p)

    def _measure(self, units: Units, by: str, name: str) -> tuple[Measured, _Drawn | None]:
        codes = self.resampler.codes[units.example]
        values: dict[str, Estimate | float | None] = {}
        main: tuple[float, Floats] | None = None
        if units.level != "span":
            curve = Curve.of(units.labels, units.scores)
            roc, pr = self.resampler.ranking(codes, units.labels, units.scores, _BINS[units.level], curve)
            values["auroc"] = self.resampler.estimate(curve.auroc, roc)
            values["auprc"] = self.resampler.estimate(curve.auprc, pr)
            values["pearson"] = self.resampler.estimate(
                pearson(units.labels, units.scores), self.resampler.correlation(codes, units.labels, units.scores)
            )
            values["best_f1_on_test"] = curve.best_f1 if units.positives else None
            main = (curve.auroc, roc)
        if units.counts is not None:
            counts = Counts(*units.counts.sum(axis=0).tolist())
            draws = self.resampler.counted(codes, units.counts)
            for metric in ("precision", "recall", "f1") + (("iou",) if units.level == "span" else ()):
                values[metric] = self.resampler.estimate(getattr(counts, metric), draws[metric])
            if units.level == "span":
                main = (counts.f1, draws["f1"])
        sources = len(np.unique(codes))
        share = units.positives / units.size
        figures = Measured(
            units.level,
            by,
            name,
            units.size,
            units.positives,
            sources,
            always_positive_f1=always_positive_f1(share) if units.positives else None,
            **values,  # type: ignore[arg-type]
        )
        if main is None or not np.isfinite(main[0]) or not 0 < units.positives < units.size:
            return figures, None
        return figures, _Drawn(main[0], main[1], units.size)

    def _macro(self, level: str, by: str, parts: Sequence[_Drawn]) -> Macro:
        values, draws = np.array([part.value for part in parts]), np.stack([part.draws for part in parts])
        estimates = []
        for weights in (np.ones(len(parts)), np.array([part.units for part in parts], dtype=np.float64)):
            known = np.isfinite(draws) * weights[:, None]
            total = known.sum(axis=0)
            means = np.divide(
                (np.nan_to_num(draws) * known).sum(axis=0), total, out=np.full(len(total), np.nan), where=total > 0
            )
            estimates.append(self.resampler.estimate(float(np.average(values, weights=weights)), means))
        return Macro(level, by, metric_of(level), len(parts), *estimates)


def metric_of(level: str) -> str:
    """Return the metric by which rows are compared at a level."""
    return "f1" if level == "span" else "auroc"


def _slices(units: Units, data: Traced, of: Callable[[Example], str | None]) -> Iterable[tuple[str, Units]]:
    """Yield the units of each task, generator or data set; nothing if there is one only."""
    names = np.array([of(item.example) or "(unknown)" for item in data])[units.example]
    present = np.unique(names)
    if len(present) > 1:
        for name in present.tolist():
            yield name, units.select(names == name)


def _notes(scored: Scored, measured: Sequence[Measured], levels: Sequence[str]) -> list[str]:
    notes = []
    if scored.failures:
        notes.append(f"{len(scored.failures)} examples could not be scored, the first because: {scored.failures[0][1]}")
    missing = [level for level in levels if not any(item.level == level for item in measured)]
    if missing:
        notes.append(f"no labels for the level {', '.join(missing)}")
    for level in levels:
        if any(getattr(line, level) is None for line in scored.folds) and level not in missing:
            notes.append(f"{level}: no threshold, dev holds one class only in some fold")
        unmet = sum(level in line.unmet for line in scored.folds)
        if unmet:
            notes.append(f"{level}: in {unmet} of {len(scored.folds)} folds no threshold met the objective on dev")
    if scored.candidate.line() is not None:
        notes.append("response and span thresholds are those saved with the detector")
    return notes
