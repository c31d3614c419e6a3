"""``groundscope analyse``: what heads and layers do when a model is faithful, and what changes to them do to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from groundscope.cli.console import EXIT_INCOMPLETE, note
from groundscope.cli.options import DeviceOption, DtypeOption, LimitOption, TemplateOption, output_folder
from groundscope.train.progress import shown

if TYPE_CHECKING:
    from groundscope.detectors.base import Detector

_JSON, _MARKDOWN = "analysis.json", "analysis.md"


def analyse(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Labelled JSON Lines, or a trace store.")],
    output: Annotated[Path, output_folder("Where the report goes.")],
    differences: Annotated[
        bool, typer.Option(help="Compare faithful and hallucinated responses, head by head and layer by layer.")
    ] = True,
    copying: Annotated[
        bool, typer.Option("--copying", help="Relate heads to their copying scores; takes a minute or more.")
    ] = False,
    heads: Annotated[
        str | None,
        typer.Option(
            metavar="WHICH", help="Let heads attend at random: 3.2,4.1 (LAYER.HEAD), copying:N or difference:N."
        ),
    ] = None,
    layers: Annotated[
        str | None, typer.Option(metavar="WHICH", help="Make feed-forward blocks louder: 20,21 or correlation:N.")
    ] = None,
    factor: Annotated[float, typer.Option(help="How much louder.")] = 10.0,
    rows: Annotated[
        Literal["response", "all"], typer.Option(help="Change the model where it reads the answer, or everywhere.")
    ] = "response",
    draws: Annotated[int, typer.Option(min=1, help="Draws of random heads or layers to compare with.")] = 5,
    match: Annotated[
        Literal["any", "layer"], typer.Option(help="Draw random heads from all layers, or from the same ones.")
    ] = "any",
    robustness: Annotated[
        list[str] | None,
        typer.Option(
            metavar="AXIS", help="Curves along dropped, injected, weight, kernel or documents; repeat for more."
        ),
    ] = None,
    detector: Annotated[
        str, typer.Option(help="Whose curves: a detector's name, or the folder of a trained one.")
    ] = "lumina",
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="NAME=VALUE", help="A parameter of the detector; repeat for more."),
    ] = None,
    task: Annotated[str | None, typer.Option(help="Only examples of this task.")] = None,
    limit: LimitOption = None,
    resamples: Annotated[int, typer.Option(min=1, help="Draws of the bootstrap.")] = 1000,
    model: Annotated[str | None, typer.Option(help="The model that reads.")] = None,
    device: DeviceOption = None,
    dtype: DtypeOption = "auto",
    template: TemplateOption = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Sequences read at once.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Of every draw.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier analysis.")] = False,
) -> None:
    """Ask what ReDeEP and LUMINA asked, on any model and data.

    Differences of the external context score by head and of the parametric knowledge score by layer; what the answer
    loses when heads attend at random or feed-forward blocks are louder, against matched controls; curves of a
    detector. Writes analysis.json and analysis.md. Exit codes: 0 done, 2 wrong use, 3 some line or response could
    not be read.
    """
    from groundscope.analyse.intervention import InterventionOptions
    from groundscope.analyse.report import markdown
    from groundscope.analyse.run import Plan
    from groundscope.analyse.run import analyse as run
    from groundscope.outputs.places import FolderKind
    from groundscope.outputs.writing import replaced_folder
    from groundscope.train.data import ReadingOptions

    FolderKind("analysis", _JSON, parts=(_MARKDOWN,)).check(output, overwrite=overwrite)
    plan = Plan(
        differences=differences,
        copying=copying,
        heads=heads,
        layers=layers,
        factor=factor,
        axes=tuple(robustness or ()),
        detector=_detector(detector, param) if robustness else None,
        task=task,
        limit=limit,
        intervention=InterventionOptions(rows=rows, draws=draws, match=match, resamples=resamples, seed=seed),
    )
    options = ReadingOptions(model, device, None if dtype == "auto" else dtype, template, batch_size, seed)
    found = run(data, plan, options, progress=shown)
    text = markdown(found)
    record = json.dumps(found.to_dict(), ensure_ascii=False, indent=2, allow_nan=False)
    with replaced_folder(output) as made:
        (made / _MARKDOWN).write_text(text, encoding="utf-8")
        (made / _JSON).write_text(record + "\n", encoding="utf-8")
    print(text, end="")
    note(f"wrote {output / _JSON} and {output / _MARKDOWN}")
    failed = [item for _, item in found.interventions if item.unread]
    curves = found.robustness is not None and bool(found.robustness.unread)
    incomplete = bool(failed) or curves or found.data["bad_lines"] or found.data["unread"]
    raise typer.Exit(EXIT_INCOMPLETE if incomplete else 0)


def _detector(name: str, given: list[str] | None) -> Detector:
    from groundscope.detectors.registry import from_name
    from groundscope.detectors.saved.folder import parameters, resolve_detector

    return from_name(name, **parameters(given)) if given else resolve_detector(name)
