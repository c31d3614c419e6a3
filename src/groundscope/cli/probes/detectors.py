"""``groundscope detectors``: what can be asked for with ``--detector``."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated, Literal

import typer


def detectors(
    format: Annotated[  # noqa: A002
        Literal["text", "json"], typer.Option("--format", help="How to print the list.")
    ] = "text",
) -> None:
    """List the detectors, what they read and what they need."""
    from groundscope.detectors.registry import available

    infos = [info for _, info in sorted(available().items())]
    if format == "json":
        print(json.dumps([asdict(info) for info in infos], ensure_ascii=False, indent=2))
        return

    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("name", "summary", "signals", "training", "response score", "reference"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "name")
    for info in infos:
        training = "needed" if info.needs_training else "none"
        table.add_row(info.name, info.summary, ", ".join(info.signals), training, info.aggregation, info.reference)
    # A pipe has no width to fit: one line per detector, for grep.
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 400, markup=False, highlight=False).print(table)
