"""``groundscope transfer``: carry a trained probe over to another model."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from groundscope.cli.console import note
from groundscope.cli.options import (
    BatchSizeOption,
    DeviceOption,
    DtypeOption,
    LimitOption,
    TemplateOption,
    output_folder,
)
from groundscope.train.progress import shown

if TYPE_CHECKING:
    from groundscope.train.transfer import Transfer


def transfer(
    detector: Annotated[Path, typer.Argument(help="Folder of a trained linear probe.")],
    output: Annotated[Path, output_folder("Where the new probe goes.")],
    data: Annotated[
        Path, typer.Option(metavar="DATA", help="Texts for both models: JSON Lines, or the trace store of the old one.")
    ],
    to: Annotated[
        str | None, typer.Option("--to", metavar="MODEL", help="The model that is to be scored with.")
    ] = None,
    target: Annotated[
        Path | None, typer.Option(metavar="STORE", help="Trace store of the new model, in place of --to.")
    ] = None,
    source_model: Annotated[
        str | None, typer.Option("--from", metavar="MODEL", help="The old model, if it goes by another name here.")
    ] = None,
    dev: Annotated[
        Path | None, typer.Option(metavar="DATA", help="Labelled examples on which to choose thresholds anew.")
    ] = None,
    objective: Annotated[str, typer.Option(help="What these are for: f1, precision:P or fpr:Q.")] = "f1",
    alpha: Annotated[float, typer.Option(min=0, help="Strength of the ridge penalty; 0 is least squares.")] = 1.0,
    unit: Annotated[
        Literal["sentence", "response"], typer.Option(help="What features are averaged over to fit the map.")
    ] = "sentence",
    device: DeviceOption = None,
    dtype: DtypeOption = "auto",
    template: TemplateOption = None,
    batch_size: BatchSizeOption = 8,
    limit: LimitOption = None,
    format: Annotated[Literal["text", "json"], typer.Option(help="How to print the result.")] = "text",  # noqa: A002
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a detector that is there already.")] = False,
) -> None:
    """Use a probe that was trained on one model with another one.

    Both models read the same texts, which need no labels; a linear map between their features is fitted, and the
    result is a probe for the new model. Exit codes: 0 done, 2 wrong use.
    """
    from groundscope.detectors.saved.folder import check_folder, load_detector, save_detector
    from groundscope.errors import InputError
    from groundscope.evaluate.protocol.thresholds import Objective
    from groundscope.trace.storage.store import is_store
    from groundscope.train.data import PreparedData, ReadingOptions, prepare_data
    from groundscope.train.fitting import check_lines, draw_lines
    from groundscope.train.transfer import transfer_detector

    goal = Objective.parse(objective)
    if (to is None) == (target is None):
        raise InputError("Give either --to MODEL or --target STORE.")
    if target is None and is_store(data):
        raise InputError(
            f"--data {str(data)!r} is a trace store of the old model, which --to cannot read with the new one. Give "
            "the new model's store with --target, or the JSON Lines file as --data."
        )
    old = load_detector(detector)
    check_folder(output, overwrite=overwrite)
    options = ReadingOptions(None, device, None if dtype == "auto" else dtype, template, batch_size)

    def prepared(path: Path, model: str | None, *, labelled: bool = False) -> PreparedData:
        return prepare_data(path, [old], replace(options, model=model), limit=limit, only_labelled=labelled)

    def opened(path: Path, given: PreparedData) -> list[Any]:
        found = given.read([old], progress=shown)
        note(f"{path}, {given.options.model or 'as stored'}: {found}")
        return found.traced

    origin = source_model if is_store(data) else source_model or old.fingerprint_["model"]
    before, after = prepared(data, origin), prepared(target or data, to)
    held = None if dev is None else prepared(dev, to, labelled=True)
    if held is not None:
        check_lines(held.readable)
    result = transfer_detector(old, opened(data, before), opened(target or data, after), alpha=alpha, unit=unit)
    if dev is not None and held is not None:
        draw_lines(result.detector, opened(dev, held), goal)
    save_detector(result.detector, output, _card(result, old.fingerprint_["model"], alpha, unit))
    if format == "json":
        record = {name: value for name, value in asdict(replace(result, detector=None)).items() if name != "detector"}  # type: ignore[arg-type]
        print(json.dumps({"folder": str(output), **record}, indent=2))
    else:
        print(_summary(result))
        print(f"Saved in {output}.")


def _summary(result: Transfer) -> str:
    return (
        f"{result.detector.name}: map fitted on {result.units} units of {result.sources} sources to "
        f"{result.features} features; on held-out sources it explains {result.r2:.2f} of the variance of the old "
        f"probe's log-odds, rank correlation {result.spearman:.2f}."
    )


def _card(result: Transfer, origin: str, alpha: float, unit: str) -> str:
    threshold = result.detector.threshold_
    lines = [
        "---\nlibrary_name: groundscope\ntags: [hallucination-detection, rag, groundscope]\n---\n",
        f"# {result.detector.name} for {result.detector.fingerprint_.get('model')}, carried over from {origin}\n",
        _summary(result),
        f"The map is ridge regression (alpha {alpha:g}) on features averaged over each {unit}.",
        f"Thresholds: {threshold.source}." if threshold is not None else "It brings no thresholds along.",
        "It was not measured on labelled answers here: do so with `groundscope evaluate`.",
    ]
    return "\n".join(lines) + "\n"
