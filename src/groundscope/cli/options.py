"""Options that mean the same in every command that lets a model read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from groundscope.errors import GroundscopeError


def _named(value: str) -> Path:
    """Return the place that ``-o`` names; of no name, the system would make the current folder."""
    if not value.strip():
        # No InputError: of a ValueError, typer keeps the words only and puts its own around them.
        raise GroundscopeError(f"-o needs a name. Got {value!r}.")
    return Path(value)


def output_file(text: str) -> Any:
    """Return the option ``-o`` of a command that writes a file."""
    return typer.Option("--output", "-o", metavar="FILE", help=text, parser=_named)


def output_folder(text: str) -> Any:
    """Return the option ``-o`` of a command that fills a folder."""
    return typer.Option("--output", "-o", metavar="FOLDER", help=text, parser=_named)


Dtype = Literal["auto", "float32", "bfloat16", "float16"]
DeviceOption = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps; default: the best there is.")]
DtypeOption = Annotated[Dtype, typer.Option(help="Precision.")]
TemplateOption = Annotated[
    Path | None, typer.Option(help="A file with the prompt template to use.", exists=True, dir_okay=False)
]
BatchSizeOption = Annotated[int, typer.Option(min=1, help="Examples read at once.")]
LimitOption = Annotated[
    int | None,
    typer.Option(min=1, help="Only the first N records of DATA; of a trace store, of the data it was made from."),
]
ProfileOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Judge by the lines of a profile that 'groundscope calibrate' made."),
]
