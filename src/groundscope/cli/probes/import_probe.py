"""``groundscope import-probe``: a classifier that the Lookback Lens authors released, as a detector of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from groundscope.cli.options import output_folder


def import_probe(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="The released pickle; nothing in it is run.")],
    output: Annotated[Path, output_folder("Where the detector goes.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a detector that is there already.")] = False,
) -> None:
    """Turn a released Lookback Lens classifier into a detector, without unpickling it.

    The released ones were fitted on Llama-2-7B-chat and score what a model of 32 layers of 32 heads reads. Exit
    codes: 0 done, 2 wrong use or a file that holds anything else.
    """
    from groundscope.detectors.saved.folder import check_folder, save_detector
    from groundscope.detectors.saved.released import import_lookback_lens

    check_folder(output, overwrite=overwrite)
    detector = import_lookback_lens(source)
    save_detector(detector, output)
    count = int(detector.probe_.selected_.sum())
    print(f"{detector.name}: {count} weights, read from {source.name}, saved in {output}.")
