"""The report folder of an evaluation: ``results.json``, ``report.md``, ``report.html`` and ``plots/``."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from groundscope.errors import InputError, PrerequisiteError
from groundscope.evaluate.results.results import Evaluation
from groundscope.outputs.places import check_folder_place
from groundscope.report.evaluation.html import render_evaluation
from groundscope.report.evaluation.markdown import render_markdown
from groundscope.report.evaluation.plots import Plot, draw

RESULTS, MARKDOWN, PAGE, PLOTS = "results.json", "report.md", "report.html", "plots"


def check_report_place(folder: str | Path, overwrite: bool = False) -> None:
    """Refuse a place where no report can be written, before any work is done.

    Raises:
        InputError: If something else is there, or a report and ``overwrite`` is not set.
        PrerequisiteError: If the folder cannot be written.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / RESULTS).is_file())):
        raise InputError(f"{str(folder)!r} exists and is no report. Choose another folder.")
    if folder.exists() and any(folder.iterdir()) and not overwrite:
        raise InputError(f"{str(folder)!r} holds a report already. Choose another folder, or pass --overwrite.")
    foreign = sorted(path.name for path in folder.glob("*") if path.name not in (RESULTS, MARKDOWN, PAGE, PLOTS))
    if foreign:
        raise InputError(
            f"{str(folder)!r} holds {foreign[0]!r}, which is no part of a report and would be lost. "
            "Move it, or choose another folder."
        )
    check_folder_place(folder)


def write_report(evaluation: Evaluation, folder: str | Path, *, overwrite: bool = False) -> str:
    """Write an evaluation to a folder, which appears whole or not at all.

    Without matplotlib the report has no plots and says how to get them.

    Args:
        evaluation: What was found.
        folder: Where to; its parents are made.
        overwrite: Whether an earlier report there is replaced.

    Returns:
        Why there are no plots; empty if there are.

    Raises:
        InputError: See :func:`check_report_place`.
        PrerequisiteError: If the folder cannot be written.
    """
    folder = Path(folder)
    check_report_place(folder, overwrite)
    plots: list[Plot] = []
    missing = ""
    try:
        plots = draw(evaluation)
    except PrerequisiteError as exc:
        missing = str(exc)
    results = json.dumps(evaluation.to_dict(), ensure_ascii=False, allow_nan=False, indent=1)
    links = [(plot.title, f"{PLOTS}/{plot.name}.svg") for plot in plots]
    texts = {
        RESULTS: results + "\n",
        MARKDOWN: render_markdown(evaluation, links, missing),
        PAGE: render_evaluation(evaluation, plots, missing=missing),
        **{f"{PLOTS}/{plot.name}.svg": plot.svg for plot in plots},
    }
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            for name, text in texts.items():
                (temporary / name).parent.mkdir(exist_ok=True)
                (temporary / name).write_text(text, encoding="utf-8")
            temporary.chmod(0o755)
            if folder.exists():
                old = temporary.with_name(f"{temporary.name}.old")
                folder.rename(old)
                temporary.rename(folder)
                shutil.rmtree(old)
            else:
                temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as exc:
        raise PrerequisiteError(f"{str(folder)!r} cannot be written: {exc.strerror or exc}.") from exc
    return missing


def read_results(folder: str | Path) -> Evaluation:
    """Read the results of a report folder.

    Raises:
        InputError: If there are none, or they are damaged or of another version.
    """
    path = Path(folder) / RESULTS
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise InputError(f"{str(path)!r} cannot be read: {exc.strerror}.") from exc
    except ValueError as exc:
        raise InputError(f"{str(path)!r} is not valid JSON: {exc}.") from exc
    return Evaluation.from_dict(record)
