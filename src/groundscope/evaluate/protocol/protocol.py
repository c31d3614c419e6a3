"""The evaluation protocol: splits by source, everything learnt or chosen elsewhere than measured, controls beside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from groundscope._version import __version__
from groundscope.detectors.base import Detector
from groundscope.errors import InputError
from groundscope.evaluate.metrics.bootstrap import Resampler
from groundscope.evaluate.protocol.controls import controls
from groundscope.evaluate.protocol.cross_task import cross_tables
from groundscope.evaluate.protocol.crossfit import Scored, cross_fit
from groundscope.evaluate.protocol.figures import anatomy, figure
from groundscope.evaluate.protocol.measure import Meter
from groundscope.evaluate.protocol.planning import plan_splits
from groundscope.evaluate.protocol.scoring import Candidate, candidates
from groundscope.evaluate.protocol.splits import sources
from groundscope.evaluate.protocol.thresholds import Objective
from groundscope.evaluate.protocol.units import LEVELS, Truth, check_levels, gather
from groundscope.evaluate.results.findings import findings
from groundscope.evaluate.results.results import CrossTable, Evaluation
from groundscope.trace.traced import Traced, TracedExample, check_one_model, examples_of


def evaluate(
    data: Traced,
    detectors: Collection[Detector] | dict[str, Detector],
    *,
    test: Traced | None = None,
    split: str = "folds",
    count: int = 5,
    dev_share: float = 0.2,
    test_share: float = 0.2,
    levels: Sequence[str] = LEVELS,
    objective: str = "f1",
    cross: bool = True,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    progress: bool = False,
) -> Evaluation:
    """Measure detectors and controls on labelled, traced examples.

    Rules are scored as they are. Probes that have not learnt are made anew and fitted in every fold on its
    training part; probes that have (loaded ones) are scored as they are, and refused on what they learnt from.
    Thresholds are chosen on a dev part that shares no source with what is measured. A detector that cannot
    learn from these labels, or raises, gets a row that says why.

    Scores of all folds are pooled, so a probe's figures hold the small differences between fold models too.

    Args:
        data: Labelled examples with the signals that the detectors read; unlabelled ones are left out and counted.
        detectors: By name, or to be named after themselves.
        test: Other examples to measure on; all of ``data`` is then for learning and choosing.
        split: Without ``test``: ``folds`` (cross-fitting), ``records`` (the records' ``split``) or ``shares``.
        count: Number of folds.
        dev_share: Share held back for choices.
        test_share: Share measured on, for ``shares``.
        levels: Of ``token``, ``window``, ``span``, ``response``.
        objective: Of thresholds: ``f1``, ``precision:0.9``, ``fpr:0.05``.
        cross: Whether to fit on each task and measure on the others too, where there are several (only with folds).
        resamples: Bootstrap resamples of sources.
        confidence: Of the intervals.
        seed: Of splits and resamples.
        progress: Whether to show a bar.

    Returns:
        All figures; :func:`groundscope.report.evaluation.folder.write_report` makes a folder of them.

    Raises:
        InputError: If the data cannot be split as asked, hold one class only or an example twice, were read by several
            models, or a parameter is wrong.
    """
    wanted = check_levels(levels)
    if not wanted:
        raise InputError(f"The 'levels' parameter of evaluate must name at least one of {', '.join(LEVELS)}. Got none.")
    aim = Objective.parse(objective)
    items, left_out = _labelled(data, "data")
    methods = candidates(detectors)
    held_out, more = (None, 0) if test is None else _labelled(test, "test")
    splits = plan_splits(
        examples_of(items),
        None if held_out is None else examples_of(held_out),
        split=split,
        count=count,
        dev_share=dev_share,
        test_share=test_share,
        seed=seed,
    )
    items, left_out = [*items, *(held_out or ())], left_out + more
    check_one_model(items)
    truth, groups = Truth(items), sources(items)
    measured = np.sort(np.concatenate([part.test for part in splits]))
    others = controls(items)
    _check_names(methods, others)
    scored: list[Scored] = []
    everything: list[Candidate] = [*methods, *others]
    for candidate in tqdm(everything, unit="detector", disable=not progress):
        scored.append(cross_fit(candidate, truth, splits, aim))
    held = [groups[index] for index in measured]
    meter = Meter(truth, _resampler(groups, held, resamples, confidence, seed), measured, wanted)
    rows = tuple(meter.row(item) for item in scored)
    pairs = tuple(meter.comparisons(rows))
    facts = _facts([items[index] for index in measured], truth, measured, held, left_out)
    figures = [
        figure(item.candidate, gather(truth, level, item.scores, item.lines, measured))
        for item in scored
        if item.failure is None
        for level in wanted
        if level != "span"
    ]
    tables: tuple[CrossTable, ...] = ()
    if cross and test is None and split == "folds":
        tables = cross_tables(scored, truth, levels=wanted, count=count, dev_share=dev_share, seed=seed, objective=aim)
    return Evaluation(
        data=facts,
        protocol={
            "groundscope": __version__,
            "split": "test" if test is not None else split,
            "folds": len(splits),
            "sizes": [[len(part.train), len(part.dev), len(part.test)] for part in splits],
            "objective": str(aim),
            "levels": list(wanted),
            "resamples": resamples,
            "confidence": confidence,
            "seed": seed,
        },
        rows=rows,
        comparisons=pairs,
        cross=tables,
        findings=findings(facts, rows, pairs, wanted),
        figures=tuple(item for item in figures if item is not None),
        anatomies=tuple(item for item in (anatomy(one, truth) for one in scored) if item is not None),
    )


def _labelled(data: Traced, name: str) -> tuple[list[TracedExample], int]:
    for item in data:
        if not isinstance(item, TracedExample):
            raise InputError(f"The {name!r} parameter of evaluate must hold TracedExample. Got {item!r} instead.")
    kept = [item for item in data if item.example.labels is not None or item.example.hallucinated is not None]
    if not kept:
        raise InputError(
            f"The {name!r} parameter of evaluate holds no labelled example. Got {len(data)} without 'labels' and "
            "'hallucinated'; measuring needs labels."
        )
    return kept, len(data) - len(kept)


def _resampler(groups: Sequence[str], held: Sequence[str], resamples: int, confidence: float, seed: int) -> Resampler:
    """Draw among the sources measured on; the codes are per example, also for those that are not measured."""
    resampler = Resampler(held, resamples, confidence, seed)
    position = {name: code for code, name in enumerate(resampler.names)}
    resampler.codes = np.array([position.get(group, -1) for group in groups], dtype=np.int64)
    return resampler


def _facts(
    data: Traced, truth: Truth, rows: np.ndarray[Any, Any], held: Sequence[str], left_out: int
) -> dict[str, Any]:
    return {
        "examples": len(data),
        "positives": int(truth.responses[rows].sum()),
        "sources": len(set(held)),
        "unlabelled": left_out,
        "readers": sorted({item.trace.model for item in data}),
        "label_kinds": dict(Counter(truth.kinds[index] for index in rows)),
        "datasets": dict(sorted(Counter(item.example.dataset or "(unknown)" for item in data).items())),
        "tasks": dict(sorted(Counter(item.example.task or "(unknown)" for item in data).items())),
        "generators": dict(sorted(Counter(item.example.model or "(unknown)" for item in data).items())),
    }


def _check_names(methods: Sequence[Candidate], others: Sequence[Candidate]) -> None:
    taken = {item.name for item in others}
    for method in methods:
        if method.name in taken:
            raise InputError(f"The name {method.name!r} is that of a control. Give the detector another name.")
