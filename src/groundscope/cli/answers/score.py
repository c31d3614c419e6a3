"""``groundscope score``: one example from options, or a file of records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from groundscope.cli.answers.reading import ContrastSource, Format, Reading, json_line
from groundscope.cli.console import EXIT_FLAGGED, EXIT_INCOMPLETE, read_argument
from groundscope.cli.options import (
    BatchSizeOption,
    DeviceOption,
    DtypeOption,
    LimitOption,
    ProfileOption,
    TemplateOption,
    output_file,
)
from groundscope.errors import InputError
from groundscope.lm.loading.catalog import DEFAULT_MODEL
from groundscope.outputs.names import HTML, JSON, LINES, TEXT, check_promise, promised
from groundscope.outputs.places import check_new_file
from groundscope.outputs.writing import replace_text

if TYPE_CHECKING:
    from groundscope.verdict import Verdict

_FORMATS: dict[str | None, Format] = {HTML: "html", TEXT: "text"}
EPILOG = (
    "Exit codes. 0: done. 1: flagged as unsupported (one example; a file only with --fail-on-flagged; never "
    "with --exit-zero). 2: wrong use, refused input or something missing. 3: a record could not be read or "
    "scored; in a file, answers that claim nothing (empty, or declining) are no fault. 70: a fault of groundscope's "
    "own, with a traceback. 130: interrupted. 141: the reader of the output went away."
)


def score(
    data: Annotated[
        str | None,
        typer.Argument(metavar="DATA", help="JSON Lines, plain or gzip, one record per line; '-' reads stdin."),
    ] = None,
    question: Annotated[str | None, typer.Option(help="The question; may be left out.", metavar="TEXT")] = None,
    passage: Annotated[
        list[str] | None, typer.Option(help="A passage; repeat for more than one.", metavar="FILE_OR_TEXT")
    ] = None,
    response: Annotated[str | None, typer.Option(help="The answer to check.", metavar="FILE_OR_TEXT")] = None,
    output: Annotated[
        Path | None,
        output_file("Write here; without it, to stdout."),
    ] = None,
    detector: Annotated[
        str,
        typer.Option(
            help="A name ('groundscope detectors' lists them), NAME:PARAM=VALUE,..., or a trained one's folder."
        ),
    ] = "contrast",
    model: Annotated[
        str, typer.Option(help="The model that reads: embedded name, hub id, folder or .gguf.")
    ] = DEFAULT_MODEL,
    format: Annotated[  # noqa: A002
        Format | None,
        typer.Option(
            help="Default: text; with -o by its extension, otherwise json: one line per record, or in FILE.json one "
            "array of them."
        ),
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="Flag responses that score at least this.")] = None,
    span_threshold: Annotated[float | None, typer.Option(help="Mark tokens that score at least this.")] = None,
    profile: ProfileOption = None,
    max_false_alarm: Annotated[
        float | None,
        typer.Option(
            help="Flag at most this share of faithful answers, by the held-out scores that a detector brings along."
        ),
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(help="With which --max-false-alarm is promised. [default: 0.9]")
    ] = None,
    device: DeviceOption = None,
    dtype: DtypeOption = "auto",
    batch_size: BatchSizeOption = 8,
    template: TemplateOption = None,
    long_context: Annotated[
        Literal["refuse", "chunk"], typer.Option(help="What to do with prompts longer than the model reads.")
    ] = "refuse",
    contrast: Annotated[
        ContrastSource,
        typer.Option(
            help="Where random documents come from: the other records, the built-in pool (an answer then scores "
            "the same whatever stands beside it), or auto: the records, and the pool where they do not suffice."
        ),
    ] = "auto",
    seed: Annotated[int, typer.Option(help="Decides which random document is drawn.")] = 0,
    limit: LimitOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Discard an earlier output and start again.")] = False,
    include_context: Annotated[
        bool,
        typer.Option("--include-context/--no-include-context", help="Repeat question and passages in JSON."),
    ] = False,
    fail_on_flagged: Annotated[
        bool | None,
        typer.Option("--fail-on-flagged/--exit-zero", help="Whether to exit with 1 if anything is flagged."),
    ] = None,
) -> None:
    """Score how well responses are supported by their passages.

    One example: --question, --passage (repeatable) and --response. FILE_OR_TEXT is read as a file if one of
    that name exists; '@FILE' insists on a file, '-' reads stdin, anything else is the text itself.

    Many: a DATA file with the fields response, context (a string or a list of strings), question and id. With
    -o, finished records stand in FILE.partial while the run goes on, one JSON line each, whatever FILE will hold;
    the same command again resumes it.
    """
    reading = Reading(
        model, detector, threshold, device, dtype, template, long_context, batch_size, seed, span_threshold, contrast,
        profile, max_false_alarm, confidence,
    )  # fmt: skip
    wanted = _format(format, output)
    if data is not None:
        if question is not None or passage or response is not None:
            raise InputError("Give either DATA or --question, --passage and --response. Got both.")
        from groundscope.cli.answers.score_file import FileRun

        run = FileRun(data, output, wanted, reading, limit, overwrite, include_context)
        raise typer.Exit(run.execute(fail_on_flagged is True))
    if response is None or not passage:
        raise InputError("Give a DATA file, or --response and at least one --passage. See 'groundscope score --help'.")
    if limit is not None:
        raise InputError("--limit goes with a DATA file. Got a single example.")
    if [*passage, response, question].count("-") > 1:
        raise InputError("Standard input ('-') can be read for one option only. Got it for several.")
    if output is not None:
        check_new_file(output, overwrite=overwrite)
    texts = [read_argument("--passage", item) for item in passage]
    answer = read_argument("--response", response)
    verdict = reading.load().score(question=question or "", passages=texts, response=answer)
    _show(verdict, wanted, output, include_context)
    raise typer.Exit(_exit_code(verdict, fail_on_flagged is not False))


def _format(given: Format | None, output: Path | None) -> Format:
    if output is None:
        return given or "text"
    check_promise(output, LINES, JSON, HTML, TEXT)
    implied = _FORMATS.get(promised(output), "json")
    # JSON is text as well, and a name without a known ending promises nothing.
    if given not in (None, implied) and ("html" in (given, implied) or promised(output) in (LINES, JSON)):
        raise InputError(f"--format {given} does not fit -o {output}. Name the file after its format.")
    return given or implied


def _show(verdict: Verdict, wanted: Format, output: Path | None, include_context: bool) -> None:
    if wanted == "html":
        from groundscope.report.verdict.html import render_page, write_page

        if output is not None:
            write_page(output, [verdict])
            return
        text = render_page([verdict])
    elif wanted == "json":
        text = json_line(verdict, include_context)
    else:
        from groundscope.report.verdict.terminal import format_verdict

        text = format_verdict(verdict, color=None if output is None else False)
    if output is None:
        print(text)
    else:
        replace_text(output, text + "\n")


def _exit_code(verdict: Verdict, fail_on_flagged: bool) -> int:
    if verdict.score is None:
        return EXIT_INCOMPLETE
    return EXIT_FLAGGED if verdict.flagged and fail_on_flagged else 0
