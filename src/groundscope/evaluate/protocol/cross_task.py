"""Fitted on one task, measured on another: what is left when the kind of text changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from groundscope.errors import GroundscopeError
from groundscope.evaluate.metrics.binary import Curve
from groundscope.evaluate.protocol.crossfit import Scored, cross_fit
from groundscope.evaluate.protocol.splits import Split, carve, folds, sources
from groundscope.evaluate.protocol.thresholds import Objective
from groundscope.evaluate.protocol.units import Truth, gather
from groundscope.evaluate.results.results import CrossRow, CrossTable
from groundscope.trace.traced import Traced

Rows = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.float64]


def part_names(data: Traced) -> list[str]:
    """Return the part of each example: its task, with its data set where there are several."""
    several = len({item.example.dataset for item in data}) > 1
    names = []
    for item in data:
        task = item.example.task or "(no task)"
        names.append(f"{item.example.dataset or '(no data set)'} {task}" if several else task)
    return names


def cross_tables(
    scored: Sequence[Scored],
    truth: Truth,
    *,
    levels: Sequence[str],
    count: int = 5,
    dev_share: float = 0.2,
    seed: int = 0,
    objective: Objective | None = None,
) -> tuple[CrossTable, ...]:
    """Fit every candidate on each part of the data and measure it on all parts.

    On the diagonal it is cross-fitted within the part. Training examples that share a source with any other
    part are left out. What learns nothing has the same scores whatever it was "fitted" on.

    Args:
        scored: The candidates after the main run; those that learn are fitted again.
        truth: The examples and their labels.
        levels: Of these, ``window`` and ``response`` get a table.
        count: Folds within a part.
        dev_share: Share of a part held back for choices.
        seed: Of the splits.
        objective: Of thresholds; they do not show in the table.

    Returns:
        A table per level that has labels; none if there is only one part.
    """
    names = np.array(part_names(truth.data))
    parts = tuple(np.unique(names).tolist())
    if len(parts) < 2:
        return ()
    groups = np.array(sources(truth.data))
    rows = {part: np.flatnonzero(names == part) for part in parts}
    shared = np.array([len(set(names[groups == group])) > 1 for group in groups])
    wanted = [level for level in ("window", "response") if level in levels]
    matrices: dict[tuple[int, str], Matrix] = {
        (i, level): np.full((len(parts), len(parts)), np.nan) for i in range(len(scored)) for level in wanted
    }
    notes: dict[int, list[str]] = {i: [] for i in range(len(scored))}
    for a, part in enumerate(parts):
        within, across = _splits(truth, rows[part], ~shared, groups, count, dev_share, seed)
        for i, item in enumerate(scored):
            if item.failure is not None:
                continue
            if item.candidate.fitting != "cross-fitted":
                runs: list[tuple[Scored | None, list[int]]] = [(item, list(range(len(parts))))]
            else:
                others = [b for b in range(len(parts)) if b != a]
                runs = []
                for splits, columns in ((within, [a]), (across, others)):
                    if isinstance(splits, str):
                        notes[i].append(f"{part}: {splits}")
                        continue
                    run = cross_fit(item.candidate, truth, splits, objective or Objective())
                    if run.failure is not None:
                        notes[i].append(f"{part}: {run.failure}")
                    runs.append((run, columns))
            for found, columns in runs:
                for level in wanted:
                    for b in columns:
                        matrices[i, level][a, b] = _auroc(truth, level, found, rows[parts[b]])
    sizes = tuple(len(rows[part]) for part in parts)
    tables = []
    for level in wanted:
        kept = [matrices[i, level] for i in range(len(scored))]
        if not np.isnan(kept).all():
            found_rows = _rows(scored, kept, notes)
            tables.append(CrossTable(level, parts, sizes, found_rows, int(shared.sum())))
    return tuple(tables)


def gaps(matrices: Sequence[Matrix]) -> Matrix:
    """Return AggTruth's gap of each method by training part, in percent, (method, part).

    For a training part, the mean over the other parts s of (max over methods of AUROC_s - AUROC_s) / max * 100
    (arXiv 2506.18628, section 4). NaN where a value is missing.

    Args:
        matrices: One (training part, measured part) table of AUROC per method.
    """
    stacked = np.stack(matrices)
    best = stacked.max(axis=0)
    lost = (best - stacked) / best * 100
    count = stacked.shape[1]
    off = ~np.eye(count, dtype=bool)
    result: Matrix = np.stack([lost[:, a, off[a]].mean(axis=1) for a in range(count)], axis=1)
    return result


def _splits(
    truth: Truth,
    mine: Rows,
    free: npt.NDArray[np.bool_],
    groups: npt.NDArray[np.str_],
    count: int,
    dev_share: float,
    seed: int,
) -> tuple[list[Split] | str, list[Split] | str]:
    """Return the folds within a part and the one split from it to all others, or why there are none."""
    within: list[Split] | str
    across: list[Split] | str
    try:
        inner = folds([truth.data[i] for i in mine], count, dev_share, seed)
        within = [Split(mine[split.train], mine[split.dev], mine[split.test]) for split in inner]
    except GroundscopeError as exc:
        within = str(exc)
    try:
        train, dev = carve(truth.responses, groups, mine[free[mine]], dev_share, seed)
        others = np.setdiff1d(np.arange(len(truth.data)), mine)
        across = [Split(train, dev, others)]
    except GroundscopeError as exc:
        across = str(exc)
    return within, across


def _auroc(truth: Truth, level: str, scored: Scored | None, rows: Rows) -> float:
    if scored is None or scored.failure is not None:
        return float("nan")
    units = gather(truth, level, scored.scores, scored.lines, rows)
    return Curve.of(units.labels, units.scores).auroc if units.size else float("nan")


def _rows(scored: Sequence[Scored], matrices: Sequence[Matrix], notes: dict[int, list[str]]) -> tuple[CrossRow, ...]:
    methods = [i for i, item in enumerate(scored) if item.candidate.kind == "method" and item.failure is None]
    # A method without any value must not blank the others' gap.
    methods = [i for i in methods if not np.isnan(matrices[i]).all()]
    lost = gaps([matrices[i] for i in methods]) if methods else None
    rows = []
    for i, item in enumerate(scored):
        gap = lost[methods.index(i)] if lost is not None and i in methods else np.full(len(matrices[i]), np.nan)
        rows.append(
            CrossRow(
                item.candidate.name,
                item.candidate.kind,
                tuple(tuple(_value(cell) for cell in line) for line in matrices[i]),
                tuple(_value(cell) for cell in gap),
                tuple(notes[i]) if item.failure is None else (item.failure,),
            )
        )
    return tuple(rows)


def _value(cell: float) -> float | None:
    return float(cell) if np.isfinite(cell) else None
