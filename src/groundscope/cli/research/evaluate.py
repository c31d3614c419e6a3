"""``groundscope evaluate``: measure detectors beside controls, and write a report."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from groundscope.cli.console import EXIT_INCOMPLETE, note
from groundscope.cli.options import BatchSizeOption, DeviceOption, DtypeOption, TemplateOption, output_folder
from groundscope.train.progress import shown

if TYPE_CHECKING:
    from groundscope.detectors.base import Detector
    from groundscope.evaluate.results.results import Evaluation

EPILOG = (
    "Exit codes. 0: done. 2: wrong use, refused input or something missing. 3: the report is written, but a record "
    "could not be read or a detector has no figures. 70: a fault of groundscope's own."
)


def evaluate(
    data: Annotated[list[Path], typer.Argument(metavar="DATA...", help="Labelled JSON Lines or trace stores.")],
    output: Annotated[Path, output_folder("The report to make.")],
    detector: Annotated[
        list[str] | None,
        typer.Option(
            "--detector",
            "-d",
            metavar="NAME_OR_FOLDER",
            help="A detector, 'NAME:PARAM=VALUE,...' or the folder of a trained one; repeat for more. Default: all "
            "that one pass per document suffices for.",
        ),
    ] = None,
    test: Annotated[
        list[Path] | None,
        typer.Option(metavar="DATA", help="Measure on this instead; DATA is then for learning and choosing only."),
    ] = None,
    split: Annotated[
        Literal["folds", "records", "shares"],
        typer.Option(help="Without --test: cross-fitting, the records' own 'split', or one split by shares."),
    ] = "folds",
    folds: Annotated[int, typer.Option(min=2, help="Number of folds; sources are never cut.")] = 5,
    level: Annotated[
        list[str] | None,
        typer.Option(help="token, window, span or response only; repeat for more. Default: all the labels allow."),
    ] = None,
    objective: Annotated[
        str, typer.Option(help="What thresholds are for: f1, precision:P (at least) or fpr:Q (at most).")
    ] = "f1",
    cross_task: Annotated[
        bool,
        typer.Option("--cross-task/--no-cross-task", help="With folds: also fit on each task and measure on others."),
    ] = True,
    resamples: Annotated[int, typer.Option(min=1, help="Bootstrap resamples of sources.")] = 1000,
    model: Annotated[str | None, typer.Option(help="The model that reads, for JSON Lines.")] = None,
    device: DeviceOption = None,
    dtype: DtypeOption = "auto",
    template: TemplateOption = None,
    batch_size: BatchSizeOption = 8,
    seed: Annotated[int, typer.Option(min=0, help="Of random documents, splits and resamples.")] = 0,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, help="Only the first N records of each DATA; of a trace store, of the data it was made from."
        ),
    ] = None,
    format: Annotated[Literal["text", "json"], typer.Option(help="How to print the figures.")] = "text",  # noqa: A002
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier report.")] = False,
) -> None:
    """Measure detectors beside the controls task, length and word novelty.

    What learns is fitted anew in every fold, thresholds are chosen on a part that is not measured, and no source
    stands on two sides. FOLDER gets results.json, report.md, report.html and plots/.
    """
    from groundscope.evaluate.protocol.planning import check_learnable, plan_splits
    from groundscope.evaluate.protocol.protocol import evaluate as measure
    from groundscope.evaluate.protocol.thresholds import Objective
    from groundscope.evaluate.protocol.units import LEVELS, check_levels
    from groundscope.report.evaluation.folder import PAGE, REPORT, write_report
    from groundscope.train.data import PreparedData, ReadingOptions, check_one_reader, prepare_data

    Objective.parse(objective)
    levels = check_levels(level or LEVELS)
    REPORT.check(output, overwrite=overwrite)
    chosen = named_detectors(detector)
    options = ReadingOptions(model, device, None if dtype == "auto" else dtype, template, batch_size, seed)
    incomplete = False

    def keep(served: list[Detector]) -> None:
        for name in [name for name, made in chosen.items() if made not in served]:
            del chosen[name]

    def prepared(paths: list[Path]) -> list[PreparedData]:
        found = []
        for path in paths:
            found.append(prepare_data(path, list(chosen.values()), options, limit=limit, leave_out=not detector))
            keep(found[-1].detectors)
        return found

    def opened(paths: list[Path], parts: list[PreparedData], what: str) -> list[Any]:

        nonlocal incomplete
        found: list[Any] = []
        for path, part in zip(paths, parts, strict=True):
            result = part.read(list(chosen.values()), progress=shown)
            keep(result.detectors)
            note(f"{what}: {path}: {result}")
            incomplete |= bool(result.bad) or any(item.outcome in ("too_long", "failed") for item in result.unread)
            found += result.traced
        return found

    parts, test_parts = prepared(data), prepared(test or [])
    check_one_reader([*parts, *test_parts])
    # Reading takes minutes: what the records alone rule out is refused before.
    known, known_test = ([example for one in some for example in one.readable] for some in (parts, test_parts))
    splits = plan_splits(known, known_test if test else None, split=split, count=folds, seed=seed)
    check_learnable(chosen, [*known, *known_test], splits)
    examples = opened(data, parts, "data")
    held_out = opened(test, test_parts, "test") if test else None
    found = measure(
        examples,
        chosen,
        test=held_out,
        split=split,
        count=folds,
        levels=levels,
        objective=objective,
        cross=cross_task,
        resamples=resamples,
        seed=seed,
        progress=sys.stderr.isatty(),
    )
    missing = write_report(found, output, overwrite=overwrite)
    if missing:
        note(missing)
    _show(found, format)
    note(f"the report is in {str(output / PAGE)!r}.")
    failed = any(row.failure is not None for row in found.rows)
    raise typer.Exit(EXIT_INCOMPLETE if incomplete or failed else 0)


def named_detectors(given: list[str] | None) -> dict[str, Detector]:
    """Return the detectors that were asked for, by what they were called.

    Raises:
        InputError: If one is named twice, or made with parameters that it does not know.
        UnknownNameError: If one is not known.
    """
    from groundscope.cli.research.extract import chosen_detectors
    from groundscope.detectors.saved.folder import resolve_detector
    from groundscope.errors import InputError

    if not given:
        # Length and novelty stand among the controls already.
        made = chosen_detectors(None, False)
        return {detector.name: detector for detector in made if detector.name not in ("length", "novelty")}
    found: dict[str, Detector] = {}
    for name in given:
        if name in found:
            raise InputError(f"The detector {name!r} is given twice. Name each once.")
        found[name] = resolve_detector(name)
    return found


def _show(found: Evaluation, form: str) -> None:
    if form == "json":
        print(json.dumps(found.to_dict(), ensure_ascii=False, allow_nan=False))
        return
    from groundscope.report.evaluation.terminal import format_evaluation

    print(format_evaluation(found))
