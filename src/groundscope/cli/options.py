"""Options that mean the same in every command that lets a model read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

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
