"""What an evaluation found, as plain frozen records that go to JSON and back unchanged."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from groundscope.errors import InputError
from groundscope.evaluate.metrics.bootstrap import Estimate
from groundscope.evaluate.results.records import read_record

FORMAT = 1
POOLED = "pooled"


@dataclass(frozen=True)
class Lines:
    """Thresholds of one fold, chosen on its dev part; ``None`` where dev does not allow a choice.

    Attributes:
        token: Of token scores.
        window: Of the mean token score of windows of eight.
        span: Of stretches, before spans are cut.
        response: Of response scores.
        unmet: Levels at which no threshold met the objective on dev, so that nothing is flagged.
    """

    token: float | None = None
    window: float | None = None
    span: float | None = None
    response: float | None = None
    unmet: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """One candidate at one level on one slice of the data.

    Attributes:
        level: ``token``, ``window``, ``span`` or ``response``.
        by: ``pooled``, ``task``, ``generator`` or ``dataset``.
        slice: Which one; empty if pooled.
        units: Number measured; characters for spans.
        positives: Those hallucinated.
        sources: Different sources among them.
        auroc: Area under the ROC curve; ``None`` for spans, which have no scores to rank.
        auprc: Average precision.
        pearson: Correlation of score and label.
        precision: At the threshold chosen on dev.
        recall: At the threshold chosen on dev.
        f1: At the threshold chosen on dev.
        iou: Intersection over union of characters; spans only.
        best_f1_on_test: Highest F1 of any threshold, chosen on these very units: it flatters.
        always_positive_f1: F1 of flagging everything.
    """

    level: str
    by: str
    slice: str
    units: int
    positives: int
    sources: int
    auroc: Estimate | None = None
    auprc: Estimate | None = None
    pearson: Estimate | None = None
    precision: Estimate | None = None
    recall: Estimate | None = None
    f1: Estimate | None = None
    iou: Estimate | None = None
    best_f1_on_test: float | None = None
    always_positive_f1: float | None = None

    @property
    def prevalence(self) -> float | None:
        """Share of units that are hallucinated."""
        return self.positives / self.units if self.units else None


@dataclass(frozen=True)
class Macro:
    """Mean of a metric over slices; over generators it is the "within generator" figure.

    Attributes:
        level: As in :class:`Measured`.
        by: ``task``, ``generator`` or ``dataset``.
        metric: ``auroc``, or ``f1`` for spans.
        slices: How many have a value (both classes); the others do not count.
        unweighted: Every slice counts the same.
        weighted: Every slice counts by its units.
    """

    level: str
    by: str
    metric: str
    slices: int
    unweighted: Estimate
    weighted: Estimate


@dataclass(frozen=True)
class Row:
    """All figures of one candidate.

    Attributes:
        name: As shown.
        kind: ``method`` or ``control``.
        fitting: ``untrained``, ``cross-fitted`` or ``loaded``.
        params: Its settings.
        measured: Figures by level and slice.
        macros: Means over slices.
        lines: Thresholds fold by fold.
        failure: Why there are no figures; ``None`` if there are.
        unscored: Held-out examples that it could not score; they are in none of its figures.
        notes: What to know about the figures.
    """

    name: str
    kind: str
    fitting: str
    params: dict[str, Any]
    measured: tuple[Measured, ...] = ()
    macros: tuple[Macro, ...] = ()
    lines: tuple[Lines, ...] = ()
    failure: str | None = None
    unscored: int = 0
    notes: tuple[str, ...] = ()

    def at(self, level: str, by: str = POOLED, slice: str = "") -> Measured | None:  # noqa: A002
        """Return the figures at a level, pooled unless told otherwise; ``None`` if there are none."""
        wanted = (level, by, slice)
        return next((item for item in self.measured if (item.level, item.by, item.slice) == wanted), None)

    def macro(self, level: str, by: str) -> Macro | None:
        """Return the mean over tasks, generators or data sets; ``None`` if there is none."""
        return next((item for item in self.macros if (item.level, item.by) == (level, by)), None)


@dataclass(frozen=True)
class Comparison:
    """Two candidates on the same units and the same resamples.

    Attributes:
        level: As in :class:`Measured`.
        metric: ``auroc``, or ``f1`` for spans.
        first: Name of a row.
        second: Name of another row.
        difference: First minus second.
        p: Two-sided bootstrap p-value; not corrected for the number of comparisons.
    """

    level: str
    metric: str
    first: str
    second: str
    difference: Estimate
    p: float | None


@dataclass(frozen=True)
class CrossRow:
    """One candidate, fitted on each part of the data and measured on every part.

    Attributes:
        name: Of the row.
        kind: ``method`` or ``control``.
        auroc: ``auroc[a][b]``: fitted on part a, measured on part b; on the diagonal cross-fitted within the
            part; ``None`` where it could not be had.
        gap: AggTruth's gap in percent by training part: mean over the other parts of
            (best method's AUROC - its own) / best * 100; ``None`` for controls and where a value is missing.
        notes: Why values are missing.
    """

    name: str
    kind: str
    auroc: tuple[tuple[float | None, ...], ...]
    gap: tuple[float | None, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CrossTable:
    """Fitted on one part, measured on another.

    Attributes:
        level: ``window`` or ``response``.
        parts: Names of the parts: tasks, or data sets and tasks.
        examples: Examples in each.
        rows: The candidates.
        left_out: Training examples left out because they share a source with the part measured.
    """

    level: str
    parts: tuple[str, ...]
    examples: tuple[int, ...]
    rows: tuple[CrossRow, ...]
    left_out: int = 0


@dataclass(frozen=True)
class Figure:
    """What a plot of one row shows, small enough to be kept.

    Attributes:
        row: Name of the row.
        level: As in :class:`Measured`.
        roc: (false-positive rate, true-positive rate) points.
        pr: (recall, precision) points.
        edges: Edges of the score bins.
        faithful: Density of faithful units in each bin.
        hallucinated: Density of hallucinated units in each bin.
        calibration: (mean score, rate, units) by bin, if all scores are in [0, 1].
    """

    row: str
    level: str
    roc: tuple[tuple[float, float], ...]
    pr: tuple[tuple[float, float], ...]
    edges: tuple[float, ...]
    faithful: tuple[float, ...]
    hallucinated: tuple[float, ...]
    calibration: tuple[tuple[float, float, int], ...] = ()


@dataclass(frozen=True)
class Anatomy:
    """Where in the model a row's signal sits.

    Attributes:
        row: Name of the row.
        head_weights: (layer, head), mean over folds; empty if it has none.
        layer_weights: (layer,) likewise; where only heads have weights, their mean magnitude by layer.
        pairs: (external score, internal score, 1 if hallucinated) of responses; empty if it has none.
    """

    row: str
    head_weights: tuple[tuple[float, ...], ...] = ()
    layer_weights: tuple[float, ...] = ()
    pairs: tuple[tuple[float, float, int], ...] = ()


@dataclass(frozen=True)
class Evaluation:
    """The whole of it.

    Attributes:
        data: What was measured on: examples, positives, sources, tasks, generators, kinds of labels, reading
            model.
        protocol: How: splits, objective, resamples, confidence, seed, versions.
        rows: Methods and controls.
        comparisons: Pairs of rows.
        cross: Fitted on one part, measured on another; empty if there is one part only.
        findings: What must not be overlooked, in sentences; controls that beat a method first.
        figures: For plots.
        anatomies: For plots.
        format: Version of this record.
    """

    data: dict[str, Any]
    protocol: dict[str, Any]
    rows: tuple[Row, ...]
    comparisons: tuple[Comparison, ...] = ()
    cross: tuple[CrossTable, ...] = ()
    findings: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    anatomies: tuple[Anatomy, ...] = ()
    format: int = FORMAT

    def row(self, name: str) -> Row:
        """Return a row by name.

        Raises:
            InputError: If there is none.
        """
        for item in self.rows:
            if item.name == name:
                return item
        raise InputError(f"There is no row {name!r}. Known: {', '.join(item.name for item in self.rows)}.")

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, record: Any) -> Evaluation:
        """Read what :meth:`to_dict` wrote.

        Raises:
            InputError: If it is not such a record, or one of another version.
        """
        found = record.get("format") if isinstance(record, dict) else None
        if found != FORMAT:
            raise InputError(
                f"These results have the format {found!r}; this version of groundscope reads {FORMAT}. Evaluate again."
            )
        return read_record(cls, record, "the evaluation")
