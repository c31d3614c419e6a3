"""``groundscope train``: labelled data in, a saved detector with its model card out."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from groundscope.cli.console import note
from groundscope.cli.options import BatchSizeOption, DeviceOption, DtypeOption, TemplateOption, output_folder
from groundscope.train.progress import shown

if TYPE_CHECKING:
    from groundscope.train.data import ReadingOptions
    from groundscope.train.fitting import Training


def train(
    detector: Annotated[str, typer.Argument(help="A method that learns; see 'groundscope detectors'.")],
    data: Annotated[
        list[Path], typer.Option("--train", metavar="DATA", help="JSON Lines or a trace store; repeat for more.")
    ],
    output: Annotated[Path, output_folder("Where the detector goes.")],
    dev: Annotated[
        list[Path] | None,
        typer.Option(metavar="DATA", help="Examples to choose on; without it a part of --train is held back."),
    ] = None,
    test: Annotated[
        list[Path] | None, typer.Option(metavar="DATA", help="Examples to measure on only; for the model card.")
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="NAME=VALUE", help="A parameter of the method; repeat for more."),
    ] = None,
    copying_heads: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="For ReDeEP: only the N heads that copy most, found from the weights."),
    ] = None,
    objective: Annotated[
        str, typer.Option(help="What the threshold is for: f1, precision:P (at least) or fpr:Q (at most).")
    ] = "f1",
    model: Annotated[str | None, typer.Option(help="The model that reads, for JSON Lines.")] = None,
    device: DeviceOption = None,
    dtype: DtypeOption = "auto",
    template: TemplateOption = None,
    batch_size: BatchSizeOption = 8,
    seed: Annotated[int, typer.Option(min=0, help="Of random documents and of what is held back.")] = 0,
    format: Annotated[Literal["text", "json"], typer.Option(help="How to print the figures.")] = "text",  # noqa: A002
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a detector that is there already.")] = False,
) -> None:
    """Train a detector and save it with its thresholds and a model card.

    A source never stands on two sides of a split. Exit codes: 0 done, 2 wrong use or data that cannot be learnt
    from.
    """
    from groundscope.detectors.registry import from_name
    from groundscope.detectors.saved.folder import check_folder, parameters, save_detector
    from groundscope.errors import InputError
    from groundscope.evaluate.protocol.thresholds import Objective
    from groundscope.train.card import model_card
    from groundscope.train.data import PreparedData, ReadingOptions, check_one_reader, prepare_data
    from groundscope.train.fitting import plan_training, train_detector

    goal = Objective.parse(objective)
    options = ReadingOptions(model, device, None if dtype == "auto" else dtype, template, batch_size, seed)
    settings = parameters(param or [])
    made: Any = from_name(detector, **settings)
    if not made.needs_training:
        raise InputError(f"The detector {detector!r} does not learn; use it as it is.")
    check_folder(output, overwrite=overwrite)
    if copying_heads is not None and ("candidates" not in made.parameters() or "candidates" in settings):
        raise InputError(
            f"--copying-heads goes with redeep-token and redeep-chunk, and without -p candidates=.... Got {detector!r}."
        )
    given = {"train": data, "dev": dev or [], "test": test or []}
    prepared = {what: [prepare_data(path, [made], options) for path in paths] for what, paths in given.items()}
    check_one_reader([part for parts in prepared.values() for part in parts])
    # Reading takes minutes: what the records alone rule out is refused before.
    known = {what: [example for one in parts for example in one.readable] for what, parts in prepared.items()}
    plan_training(made, known["train"], known["dev"] if dev else None, known["test"] if test else None, seed=seed)
    if copying_heads is not None:
        made = from_name(detector, **settings, candidates=candidates_from_weights(options, data[0], copying_heads))

    def opened(what: str) -> list[Any]:
        found = []
        parts: list[PreparedData] = prepared[what]
        for path, part in zip(given[what], parts, strict=True):
            result = part.read([made], progress=shown)
            note(f"{what}: {path}: {result}")
            found += result.traced
        return found

    train_set, dev_set, test_set = opened("train"), opened("dev"), opened("test")
    training = train_detector(
        made, train_set, dev_set if dev else None, test_set if test else None, objective=goal, seed=seed
    )
    card = model_card(training, [*train_set, *dev_set], [path.name for path in [*data, *(dev or [])]])
    save_detector(made, output, card)
    _show(training, output, format)


def candidates_from_weights(options: ReadingOptions, data: Path, count: int) -> list[tuple[int, int]]:
    """Return the heads that copy most, of the model that reads or has read the data."""
    from dataclasses import replace

    from groundscope.errors import InputError
    from groundscope.learn.copying import copying_heads
    from groundscope.trace.storage.store import TraceStore, is_store

    if is_store(data):
        options = replace(options, model=options.model or TraceStore(data).fingerprint["model"])
    lm = options.language_model()
    heads = len(lm.anatomy.attention_layers) * lm.anatomy.heads
    if count > heads:
        raise InputError(f"--copying-heads must be at most {heads}, the heads of {lm.name}. Got {count} instead.")
    note(f"looking for the {count} heads of {lm.name} that copy most")
    return copying_heads(lm, count)


def _show(training: Training, output: Path, form: str) -> None:
    from groundscope.train.card import interval
    from groundscope.train.fitting import cautions

    if form == "json":
        record = {
            "detector": training.detector.name,
            "folder": str(output),
            "objective": str(training.objective),
            "threshold": asdict(training.detector.threshold_) if training.detector.threshold_ else None,
            "train": asdict(training.train),
            "dev": asdict(training.dev),
            "test": None if training.test is None else asdict(training.test),
            "measured_on": training.measured_on,
            "figures": [asdict(row) for row in training.figures],
            "cautions": cautions(training),
        }
        print(json.dumps(record, ensure_ascii=False, indent=2))
        return
    print(f"{training.detector.name}: learnt from {training.train}; chose on {training.dev}.")
    for row in training.figures:
        print(f"  {training.measured_on} {row.level:9} {row.name:16} AUROC {interval(row.auroc)}")
    for warning in cautions(training):
        print(warning)
    print(f"Saved in {output}; README.md there is its model card.")
