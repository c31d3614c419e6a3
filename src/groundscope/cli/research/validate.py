"""``groundscope validate``: does a signal measure what it is said to measure? Four hypotheses and a placebo."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from groundscope.cli.console import EXIT_INCOMPLETE, note
from groundscope.cli.options import DeviceOption, DtypeOption, LimitOption, TemplateOption, output_file
from groundscope.train.progress import shown

if TYPE_CHECKING:
    from groundscope.evaluate.hypotheses.inference import TokenComparison
    from groundscope.evaluate.hypotheses.validation import Tested, Validation
    from groundscope.evaluate.metrics.bootstrap import Estimate


def validate(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="JSON Lines with passages; labels are not needed.")],
    signal: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="What to test: a signal (NAME, NAME@LAYER or NAME@LAYER.HEAD), or a detector; repeat for more. "
            "Default: mmd and information_processing_rate_calibrated.",
        ),
    ] = None,
    role: Annotated[
        Literal["external", "internal"] | None,
        typer.Option(help="What signals of no known role stand for: use of documents, or of own knowledge."),
    ] = None,
    generate: Annotated[
        bool, typer.Option("--generate", help="Let the model answer without passages, which H1 needs.")
    ] = False,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Bound of these answers.")] = 128,
    documents: Annotated[int, typer.Option(min=1, help="Random documents that contrast signals compare with.")] = 1,
    cluster: Annotated[
        Literal["source", "response"], typer.Option(help="What counts as independent of each other.")
    ] = "source",
    resamples: Annotated[int, typer.Option(min=1, help="Draws of the bootstrap.")] = 1000,
    limit: LimitOption = None,
    model: Annotated[str | None, typer.Option(help="The model that reads.")] = None,
    device: DeviceOption = None,
    dtype: DtypeOption = "auto",
    template: TemplateOption = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Sequences read at once.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Of random documents and resamples.")] = 0,
    output: Annotated[Path | None, output_file("Also write the results as JSON.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")] = False,
    format: Annotated[Literal["text", "json"], typer.Option(help="How to print the results.")] = "text",  # noqa: A002
) -> None:
    """Test LUMINA's hypotheses on any signal, beside clustered inference and a placebo.

    The published t-tests count every token as independent. Beside them stand the same difference tested by source,
    effect sizes, and the same comparison with a random document in place of the passages. Exit codes: 0 done,
    2 wrong use, 3 some line or reading failed.
    """
    from groundscope.data.jsonl import BadRecord
    from groundscope.errors import InputError
    from groundscope.evaluate.hypotheses.quantity import Quantity
    from groundscope.evaluate.hypotheses.validation import ValidationOptions
    from groundscope.evaluate.hypotheses.validation import validate as run
    from groundscope.outputs.names import JSON, check_promise
    from groundscope.outputs.places import check_new_file
    from groundscope.outputs.writing import replace_text
    from groundscope.trace.storage.store import is_store
    from groundscope.train.data import ReadingOptions, records

    if is_store(data):
        raise InputError(
            "Validation reads every response under several conditions, which a trace store does not hold. "
            "Give the JSON Lines file that the store was made from."
        )
    if output is not None:
        check_new_file(output, [data], overwrite=overwrite)
        check_promise(output, JSON)
    names = list(dict.fromkeys(signal or ["mmd", "information_processing_rate_calibrated"]))
    quantities = [Quantity.parse(name, role) for name in names]
    bad: list[BadRecord] = []
    examples = list(records(data, bad, limit))
    if not examples:
        raise InputError(f"{str(data)!r} holds no usable records.")
    reader = ReadingOptions(model, device, None if dtype == "auto" else dtype, template, batch_size, seed).reader(())
    options = ValidationOptions(
        template=reader.template,
        generate=generate,
        max_new_tokens=max_new_tokens,
        documents=documents,
        cluster=cluster,
        resamples=resamples,
        batch_size=batch_size,
        seed=seed,
    )
    found = [run(reader.lm, examples, quantity, options, progress=shown) for quantity in quantities]
    record = json.dumps([item.to_dict() for item in found], ensure_ascii=False, indent=2, allow_nan=False)
    if output is not None:
        replace_text(output, record + "\n")
    print(record if format == "json" else "\n".join(line for item in found for line in _text(item)))
    for item in found:
        for reason, count in item.unread.items():
            note(f"{item.quantity}: {count} readings failed: {reason}")
    raise typer.Exit(EXIT_INCOMPLETE if bad or any(item.unread for item in found) else 0)


def _text(found: Validation) -> Iterator[str]:
    import io

    from rich.console import Console
    from rich.table import Table

    data = found.data
    tasks = ", ".join(f"{count} {name}" for name, count in data["tasks"].items())
    yield f"{found.quantity} ({found.role}), read by {found.model}: {tasks}; {data['sources']} clusters"
    table = Table(box=None, pad_edge=False)
    for heading in ("", "difference", "t by token", "t by source", "p", "Cohen's d", "AUC", "design effect", "holds"):
        table.add_column(heading, no_wrap=True)
    alpha = 1 - found.settings["confidence"]
    for item in found.tested:
        if item.real is not None and item.placebo is not None:
            table.add_row(item.name, *_cells(item.real), item.outcome(alpha))
            table.add_row("  placebo", *_cells(item.placebo), "")
            table.add_row("  excess", "" if item.excess is None else _interval(item.excess), *[""] * 7)
    if table.row_count:
        stream = io.StringIO()
        Console(file=stream, width=200, markup=False, highlight=False).print(table)
        yield from (line.rstrip() for line in stream.getvalue().splitlines())
    yield from _remarks(found.tested)
    yield ""


def _remarks(tested: tuple[Tested, ...]) -> Iterator[str]:
    for item in tested:
        yield f"{item.name}: {item.claim}" + (f"; not testable: {item.reason}" if item.reason else "")
        yield from (f"  {remark}" for remark in item.notes)


def _cells(found: TokenComparison) -> list[str]:
    by_token = " / ".join(f"{test.kind} {_number(test.t, '.2f')}" for test in found.per_token)
    test = found.clustered
    return [
        _interval(found.difference),
        by_token,
        _number(None if test is None else test.t, ".2f"),
        _number(None if test is None else test.p, ".2g"),
        _interval(found.cohen_d),
        _interval(found.auc),
        f"{_number(found.design_effect, '.1f')} ({found.first.tokens + (0 if found.paired else found.second.tokens)} "
        f"tokens count as {_number(found.effective_tokens, '.0f')})",
    ]


def _interval(found: Estimate) -> str:
    value = _number(found.value, ".3f")
    return value if found.low is None else f"{value} [{found.low:.3f}, {found.high:.3f}]"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
