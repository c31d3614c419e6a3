"""``groundscope convert``: other projects' files to groundscope's records."""

from __future__ import annotations

import contextlib
import gzip
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated, cast

import typer

from groundscope.cli.console import EXIT_INCOMPLETE, note
from groundscope.cli.options import output_file
from groundscope.errors import InputError
from groundscope.outputs.names import GZIP, LINES, check_promise, promised
from groundscope.outputs.places import check_new_file
from groundscope.outputs.writing import replaced

EPILOG = (
    "Exit codes. 0: done. 2: wrong use or refused input. 3: some records could not be read; the others are written."
)
_SHOWN = 20


def convert(
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE...", help="Files that belong together, or a folder.")],
    source_format: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FORMAT",
            help="ragtruth, redeep-dolly, hallurag, lookback-lens, halueval, label-studio, ragas or groundscope; "
            "default: found out from the content.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        output_file("Write here (gzip if it ends in .gz); default: stdout."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")] = False,
) -> None:
    """Turn data sets of other projects into JSON Lines that every command reads.

    One record per answer, with code-point offsets that were checked against the text. A record that cannot be
    read is reported with its place and reason.
    """
    from groundscope.data.jsonl import BadRecord, record_line
    from groundscope.data.loaders.registry import inputs_of, read_examples

    if output is not None:
        check_new_file(output, inputs_of(sources), overwrite=overwrite)
        check_promise(output.with_suffix("") if promised(output) == GZIP else output, LINES)
    records = read_examples(sources, source_format)
    written, bad = 0, 0
    with _writer(output) as stream:
        for record in records:
            try:
                if isinstance(record, BadRecord):
                    raise InputError(f"record {record.line}: {record.error}")
                stream.write(record_line(record.to_dict()))
                written += 1
            except InputError as exc:
                bad += 1
                if bad <= _SHOWN:
                    note(str(exc))
    if bad > _SHOWN:
        note(f"... and {bad - _SHOWN} more")
    note(f"{written} written" + (f", {bad} not readable." if bad else "."))
    if bad:
        raise typer.Exit(EXIT_INCOMPLETE)


@contextlib.contextmanager
def _writer(output: Path | None) -> Iterator[IO[str]]:
    """Yield where lines go; a file gets its name only when all are written."""
    if output is None:
        yield sys.stdout
        return
    with replaced(output) as temporary, contextlib.ExitStack() as stack:
        raw: IO[bytes] = stack.enter_context(temporary.open("wb"))
        if promised(output) == GZIP:  # no name and time inside: the same input gives the same bytes
            raw = cast(IO[bytes], stack.enter_context(gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0)))
        yield stack.enter_context(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
