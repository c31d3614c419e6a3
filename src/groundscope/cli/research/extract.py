"""``groundscope extract``: let a model read a file once, and keep the traces for every detector."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groundscope.cli.console import EXIT_INCOMPLETE, note, note_complete, resumable
from groundscope.cli.options import (
    BatchSizeOption,
    DeviceOption,
    DtypeOption,
    LimitOption,
    TemplateOption,
    output_folder,
)

if TYPE_CHECKING:
    from groundscope.detectors.base import Detector


def extract(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="JSON Lines, plain or gzip.")],
    output: Annotated[Path, output_folder("The trace store to make.")],
    detector: Annotated[
        list[str] | None,
        typer.Option(help="Whose signals to keep; repeat for more. Default: all that one pass per document yields."),
    ] = None,
    signal: Annotated[list[str] | None, typer.Option(help="A further signal by name; repeat for more.")] = None,
    model: Annotated[
        str | None, typer.Option(help="The model that reads: embedded name, hub id, folder or .gguf.")
    ] = None,
    device: DeviceOption = None,
    dtype: DtypeOption = "auto",
    template: TemplateOption = None,
    batch_size: BatchSizeOption = 8,
    seed: Annotated[int, typer.Option(min=0, help="Decides which random document is drawn.")] = 0,
    limit: LimitOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Discard an earlier store and start again.")] = False,
) -> None:
    """Read every response once and keep its signals in Parquet shards.

    'groundscope train' and 'groundscope evaluate' take the folder in place of the data. An interrupted run goes
    on where it stopped when the same command is given again; what is complete is left as it is, and no model is
    loaded. Exit codes: 0 done, 2 wrong use, 3 some line or record could not be read.
    """
    from groundscope.errors import InputError
    from groundscope.trace.storage.store import STORE
    from groundscope.train.data import ReadingOptions
    from groundscope.train.extraction import Extraction

    STORE.check(output)
    options = ReadingOptions(model, device, None if dtype == "auto" else dtype, template, batch_size, seed)
    chosen = chosen_detectors(detector, bool(signal))
    if not chosen and not signal:
        raise InputError("Give at least one --detector or --signal.")
    run = Extraction(data, output, chosen, tuple(signal or ()), options, limit, overwrite, leave_out=not detector)
    with resumable(lambda: f"finished shards are in {str(output)!r}"):
        run.execute()
    if run.was_complete:
        note_complete(output)
    note(f"{run}.")
    raise typer.Exit(EXIT_INCOMPLETE if run.incomplete else 0)


def chosen_detectors(given: list[str] | None, only_signals: bool) -> list[Detector]:
    """Return the detectors that were asked for; by default all that need nothing but the planned passes."""
    from groundscope.detectors.registry import from_name, names
    from groundscope.detectors.saved.folder import resolve_detector

    if given:
        return [resolve_detector(name) for name in given]
    if only_signals:
        return []
    made: list[Any] = [from_name(name) for name in names()]
    return [detector for detector in made if not detector.costs_more]
