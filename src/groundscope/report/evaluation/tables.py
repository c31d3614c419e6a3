"""The tables of an evaluation as plain text cells, the same in Markdown and HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from groundscope.evaluate.metrics.bootstrap import Estimate
from groundscope.evaluate.results.findings import beats
from groundscope.evaluate.results.results import CrossTable, Evaluation, Measured, Row
from groundscope.report.verdict.wording import percent

_NONE = "–"
_UNITS = {"token": "tokens", "window": "windows of 8 tokens", "span": "characters", "response": "answers"}


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        title: Heading.
        columns: Headings of the columns.
        rows: Cells, as wide as the columns.
        note: What to know about the figures.
        controls: Positions of the rows that are controls.
        long: Whether it is for looking things up, not for reading.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    controls: tuple[int, ...] = ()
    long: bool = False


def facts(evaluation: Evaluation) -> list[tuple[str, str]]:
    """Return what was measured, and how, as pairs of words."""
    data, protocol = evaluation.data, evaluation.protocol
    parts = ", ".join("/".join(map(str, sizes)) for sizes in protocol["sizes"])
    how = {
        "folds": f"{protocol['folds']} folds by source; what learns is fitted anew in each",
        "records": "as the records say",
        "shares": "once, by source",
        "test": "fitted on other data",
    }[protocol["split"]]
    return [
        ("Measured on", f"{data['examples']} answers, {data['positives']} hallucinated, {data['sources']} sources"),
        ("Read by", ", ".join(data["readers"])),
        ("Data sets", _counts(data["datasets"])),
        ("Tasks", _counts(data["tasks"])),
        ("Generators", _counts(data["generators"])),
        ("Kinds of labels", _counts(data["label_kinds"])),
        ("Unlabelled, left out", str(data["unlabelled"])),
        ("Split", f"{how}; examples to learn from / choose on / measure on: {parts}"),
        ("Thresholds", f"chosen on the second part for the objective {protocol['objective']}"),
        (
            "Intervals",
            f"{percent(protocol['confidence'])}, {protocol['resamples']} bootstrap resamples of whole sources, "
            f"seed {protocol['seed']}",
        ),
    ]


def tables(evaluation: Evaluation) -> list[Table]:
    """Return all tables, the main ones first."""
    measured = [row for row in evaluation.rows if row.failure is None]
    levels = [level for level in ("response", "span", "window", "token") if any(row.at(level) for row in measured)]
    found = [_main(level, measured) for level in levels]
    for by in ("task", "generator", "dataset"):
        found += [table for level in levels if (table := _slices(level, by, measured)) is not None]
    found += [_cross(table) for table in evaluation.cross]
    found += [table for level in levels if (table := _comparisons(evaluation, level)) is not None]
    remarks = [(row.name, row.failure or "; ".join(row.notes)) for row in evaluation.rows if row.failure or row.notes]
    if remarks:
        found.append(Table("Remarks", ("row", "remark"), tuple(remarks)))
    found.append(_settings(evaluation.rows))
    return found


def show(estimate: Estimate | None) -> str:
    """Return a figure with its interval."""
    if estimate is None or estimate.value is None:
        return _NONE
    if estimate.low is None or estimate.high is None:
        return plain(estimate.value)
    return f"{plain(estimate.value)} [{plain(estimate.low)}, {plain(estimate.high)}]"


def plain(value: float | None) -> str:
    """Return a figure with three decimals and no leading zero."""
    if value is None:
        return _NONE
    text = f"{value:.3f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 and text.lstrip("-").startswith("0.") else text


def _main(level: str, rows: Sequence[Row]) -> Table:
    ranked = sorted((row for row in rows if row.at(level)), key=lambda row: _rank(row.at(level)), reverse=True)
    cells: list[tuple[str, ...]] = []
    for row in ranked:
        item = row.at(level)
        assert item is not None  # noqa: S101 - filtered above
        within = row.macro(level, "generator")
        mean = _NONE if within is None else show(within.unweighted)
        beaten = ", ".join(beats(row, rows, level)) or "none" if row.kind == "method" else _NONE
        head, tail = (row.name, _kind(row)), (mean, beaten)
        rates = (show(item.precision), show(item.recall), show(item.f1))
        if level == "span":
            cells.append((*head, *rates, show(item.iou), *tail))
        else:
            ranking = (show(item.auroc), show(item.auprc), show(item.pearson))
            cells.append((*head, *ranking, *rates, plain(item.best_f1_on_test), *tail))
    sample = ranked[0].at(level)
    assert sample is not None  # noqa: S101 - filtered above
    if level == "span":
        middle: tuple[str, ...] = ("precision", "recall", "F1", "IoU", "F1, mean within generators")
    else:
        middle = (
            *("AUROC", "AUPRC", "Pearson", "precision", "recall", "F1"),
            *("best F1 on test (flatters)", "AUROC, mean within generators"),
        )
    return Table(
        f"{level.capitalize()} level",
        ("row", "kind", *middle, "controls that beat it"),
        tuple(cells),
        f"{sample.units} {_UNITS[level]}, {sample.positives} hallucinated ({percent(sample.prevalence or 0)}), from "
        f"{sample.sources} sources. Flagging everything has an F1 of {plain(sample.always_positive_f1)}. Precision, "
        "recall and F1 are at the threshold chosen on dev.",
        tuple(i for i, row in enumerate(ranked) if row.kind == "control"),
    )


def _slices(level: str, by: str, rows: Sequence[Row]) -> Table | None:
    names = sorted({item.slice for row in rows for item in row.measured if (item.level, item.by) == (level, by)})
    if not names:
        return None
    metric = "character F1" if level == "span" else "AUROC"
    sizes: dict[str, str] = {}
    cells = []
    for row in rows:
        items = [row.at(level, by, name) for name in names]
        sizes |= {item.slice: f"{item.slice} ({item.positives}/{item.units})" for item in items if item is not None}
        macro = row.macro(level, by)
        means = (_NONE, _NONE) if macro is None else (show(macro.unweighted), show(macro.weighted))
        cells.append((row.name, *(_NONE if item is None else show(_metric(item)) for item in items), *means))
    return Table(
        f"{level.capitalize()} level by {by}: {metric}",
        ("row", *(sizes.get(name, name) for name in names), "mean", "mean by units"),
        tuple(cells),
        f"In brackets: hallucinated/all {_UNITS[level]}. The first mean counts every {by} the same, the second by its "
        f"{_UNITS[level]}; both leave out those with one class only.",
        tuple(i for i, row in enumerate(rows) if row.kind == "control"),
    )


def _cross(table: CrossTable) -> Table:
    cells = [
        (
            row.name,
            part,
            *(plain(value) for value in row.auroc[a]),
            _NONE if (gap := row.gap[a]) is None else f"{gap:.1f}",
        )
        for row in table.rows
        for a, part in enumerate(table.parts)
        if any(value is not None for value in row.auroc[a])
    ]
    controls = {row.name for row in table.rows if row.kind == "control"}
    return Table(
        f"Fitted on one part, measured on another: AUROC, {table.level} level",
        (
            "row",
            "fitted on",
            *(f"on {part} ({n})" for part, n in zip(table.parts, table.examples, strict=True)),
            "gap %",
        ),
        tuple(cells),
        "In brackets: examples. Where both parts are the same, cross-fitted within it. Gap, as AggTruth has it: mean "
        "over the other parts of how far the row stays behind the best method there. "
        f"{table.left_out} examples share a source with another part and were not learnt from.",
        tuple(i for i, cell in enumerate(cells) if cell[0] in controls),
    )


def _comparisons(evaluation: Evaluation, level: str) -> Table | None:
    pairs = [item for item in evaluation.comparisons if item.level == level]
    if not pairs:
        return None
    metric = "character F1" if level == "span" else "AUROC"
    return Table(
        f"Differences at {level} level: {metric}",
        ("first", "second", "first minus second", "p"),
        tuple(
            (item.first, item.second, show(item.difference), _NONE if item.p is None else f"{item.p:.3f}")
            for item in pairs
        ),
        "Paired bootstrap over sources, on the same units. p is two-sided and not corrected for how many are shown.",
        long=True,
    )


def _settings(rows: Sequence[Row]) -> Table:
    cells = []
    for row in rows:
        params = ", ".join(f"{name}={value!r}" for name, value in row.params.items()) or _NONE
        lines = [
            ", ".join(f"{value:.4g}" if value is not None else "none" for value in values)
            for values in ([getattr(line, level) for line in row.lines] for level in ("response", "span"))
        ]
        cells.append((row.name, row.fitting, params, *(line or _NONE for line in lines), str(row.unscored)))
    return Table(
        "Settings",
        ("row", "fitting", "parameters", "response thresholds", "span thresholds", "not scored"),
        tuple(cells),
        "Thresholds fold by fold.",
        long=True,
    )


def _metric(item: Measured) -> Estimate | None:
    return item.f1 if item.level == "span" else item.auroc


def _rank(item: Measured | None) -> float:
    estimate = None if item is None else _metric(item)
    return -1.0 if estimate is None or estimate.value is None else estimate.value


def _kind(row: Row) -> str:
    return "control" if row.kind == "control" else row.fitting


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in counts.items())
