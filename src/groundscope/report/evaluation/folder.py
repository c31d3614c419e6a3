"""The report folder of an evaluation: ``results.json``, ``report.md``, ``report.html`` and ``plots/``."""

from __future__ import annotations

import json
from pathlib import Path

from groundscope.errors import InputError, PrerequisiteError
from groundscope.evaluate.results.results import Evaluation
from groundscope.outputs.places import FolderKind
from groundscope.outputs.writing import replaced_folder
from groundscope.report.evaluation.html import render_evaluation
from groundscope.report.evaluation.markdown import render_markdown
from groundscope.report.evaluation.plots import Plot, draw

RESULTS, MARKDOWN, PAGE, PLOTS = "results.json", "report.md", "report.html", "plots"
REPORT = FolderKind("report", RESULTS, parts=(MARKDOWN, PAGE, PLOTS))


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
        InputError: If something else is there, or a report and ``overwrite`` is not set.
        PrerequisiteError: If the folder cannot be written.
    """
    REPORT.check(folder, overwrite=overwrite)
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
    with replaced_folder(folder) as made:
        for name, text in texts.items():
            (made / name).parent.mkdir(exist_ok=True)
            (made / name).write_text(text, encoding="utf-8")
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
