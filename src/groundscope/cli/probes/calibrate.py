"""``groundscope calibrate``: answers of one's own in, a profile out that keeps a promise on such answers."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from groundscope.cli.console import note
from groundscope.cli.options import (
    BatchSizeOption,
    DeviceOption,
    DtypeOption,
    LimitOption,
    TemplateOption,
    output_folder,
)
from groundscope.train.progress import shown

if TYPE_CHECKING:
    from groundscope.detectors.saved.profile import Profile
    from groundscope.train.calibrating import Calibration, ScoredAnswers


def calibrate(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Answers: JSON Lines, or a trace store.")],
    output: Annotated[Path, output_folder("Where the profile goes.")],
    detector: Annotated[
        str, typer.Option(help="A name, NAME:PARAM=VALUE,..., or a trained one's folder, as for 'score'.")
    ] = "contrast",
    model: Annotated[str | None, typer.Option(help="The model that reads, for JSON Lines.")] = None,
    max_false_alarm: Annotated[
        float | None, typer.Option(help="Flag at most this share of faithful answers. [default: 0.1]")
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(help="Instead: at least this share of flagged answers is unsupported; needs labels."),
    ] = None,
    confidence: Annotated[float, typer.Option(help="With which this is promised.")] = 0.9,
    unit: Annotated[
        Literal["response", "sentence"],
        typer.Option(help="What the line for sentences counts: answers with a flagged sentence, or sentences."),
    ] = "response",
    assume_faithful: Annotated[
        bool, typer.Option("--assume-faithful", help="Go on where nearly all answers are flagged at present.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="What verdicts call it; by default the folder's name.")] = None,
    contrast: Annotated[
        Literal["auto", "pool", "examples"], typer.Option(help="Where random documents come from, as for 'score'.")
    ] = "auto",
    device: DeviceOption = None,
    dtype: DtypeOption = "auto",
    template: TemplateOption = None,
    batch_size: BatchSizeOption = 8,
    seed: Annotated[int, typer.Option(min=0, help="Of random documents and of sentences that are drawn.")] = 0,
    limit: LimitOption = None,
    format: Annotated[Literal["text", "json"], typer.Option(help="How to print what was found.")] = "text",  # noqa: A002
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a profile that is there already.")] = False,
) -> None:
    """Fit a detector's thresholds to your own answers, and promise how many faithful ones are flagged.

    Most of the answers should be faithful; no labels are needed. Answers that are labelled ('hallucinated' or
    'labels') count by their label. 'groundscope score --profile FOLDER' judges by the profile. To read once and
    calibrate often, or to go on after an interruption, 'groundscope extract' the answers first.

    Exit codes: 0 done, 2 wrong use or answers that no line can be drawn on.
    """
    from groundscope.detectors.base import check_detector
    from groundscope.detectors.saved.folder import resolve_detector
    from groundscope.detectors.saved.profile import (
        SAVED_PROFILE,
        Profile,
        detector_sha256,
        save_profile,
    )
    from groundscope.learn.goal import Goal
    from groundscope.train.calibrating import calibrate as draw
    from groundscope.train.calibrating import prepare_answers, read_answers
    from groundscope.train.data import ReadingOptions

    if max_false_alarm is None and precision is None:
        max_false_alarm = 0.1
    goal = Goal(max_false_alarm, precision, confidence, unit)
    SAVED_PROFILE.check(output, overwrite=overwrite)
    made = check_detector("calibrate", resolve_detector(detector))
    options = ReadingOptions(model, device, None if dtype == "auto" else dtype, template, batch_size, seed)
    prepared = prepare_answers(data, made, options, goal, limit)
    answers = read_answers(prepared, made, contrast=contrast, progress=shown)
    found = draw(answers, goal, assume_faithful=assume_faithful, seed=seed)
    title = name or output.absolute().name
    profile = Profile(
        title,
        made.name,
        detector_sha256(made),
        answers.fingerprint,
        answers.scores.threshold(found.lines, f"the profile {title!r}, {found}: {goal}"),
        goal,
        found.unlabelled,
        found.faithful,
        found.hallucinated,
        found.lines.unmet,
    )
    save_profile(profile, output, overwrite=overwrite)
    _show(profile, found, answers, output, format)


def _show(profile: Profile, found: Calibration, answers: ScoredAnswers, output: Path, form: str) -> None:
    left_out = [f"{count} {outcome}" for outcome, count in answers.unread.items()]
    left_out += [f"{answers.bad} lines not readable"] * bool(answers.bad)
    if left_out:
        note(f"left out: {', '.join(left_out)}")
    for warning in cautions(found, answers):
        note(warning)
    if form == "json":
        record = {
            "folder": str(output),
            "profile": profile.to_dict(),
            "used": found.used,
            "sources": answers.sources,
            "left_out": {**answers.unread, "not_readable": answers.bad},
            "threshold_before": asdict(answers.present),
            "flagged_before": asdict(found.before),
            "flagged_after": asdict(found.after),
            "cautions": cautions(found, answers),
        }
        print(json.dumps(record, ensure_ascii=False, indent=2, allow_nan=False))
        return
    also = f"; {found.hallucinated} labelled as hallucinated left out" * bool(found.hallucinated)
    print(f"{profile.name}: {found}{also if profile.goal.precision is None else ''}.")
    old, new = answers.present, profile.threshold
    rows: list[tuple[str, float | None, float, float | None, float]] = [
        ("responses", old.response, new.response, found.before.response, found.after.response)
    ]
    if new.sentence is not None and found.after.sentence is not None:
        rows.append(("sentences", old.sentence, new.sentence, found.before.sentence, found.after.sentence))
    rows.append(("spans", old.span, new.span, found.before.span, found.after.span))
    for what, before, after, share_before, share_after in rows:
        was = "" if before is None or share_before is None else f" (before: {before:.4g}, {share_before:.1%})"
        print(f"  {what:9} from {after:.4g} on: {share_after:.1%} of these answers{was}")
    print(f"Promise: {profile.goal}. Saved in {output}; judge by it with --profile {output}.")


def cautions(found: Calibration, answers: ScoredAnswers) -> list[str]:
    """Return what weakens the promise."""
    said = []
    if answers.sources < len(answers.scores):
        said.append(
            f"The {len(answers.scores)} answers are about {answers.sources} contexts. The promise counts answers as "
            "drawn one by one; answers about the same passages tell less."
        )
    if found.lines.unmet:
        said.append(
            f"No line for {' and '.join(found.lines.unmet)} can be shown to keep the goal on these answers; it lies "
            "above all of them."
        )
    return said
