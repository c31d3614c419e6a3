"""An evaluation as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from groundscope.evaluate.results.results import Evaluation
from groundscope.report.evaluation.tables import Table, facts, tables
from groundscope.report.safe_text import visible

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#])")


def render_markdown(evaluation: Evaluation, plots: Sequence[tuple[str, str]] = (), missing: str = "") -> str:
    """Write an evaluation as Markdown.

    Args:
        evaluation: What was found.
        plots: (title, relative path) of pictures.
        missing: Why there are none.
    """
    parts = ["# Evaluation\n", "\n".join(f"- {name}: {_safe(value)}" for name, value in facts(evaluation)) + "\n"]
    if evaluation.findings:
        parts += ["## Findings\n", "\n".join(f"- {_safe(item)}" for item in evaluation.findings) + "\n"]
    for table in tables(evaluation):
        parts += [f"## {_safe(table.title)}\n", _table(table)]
    parts += [f"## {_safe(title)}\n\n![{_safe(title)}]({path})\n" for title, path in plots]
    if missing:
        parts.append(f"{_safe(missing)}\n")
    return "\n".join(parts)


def _table(table: Table) -> str:
    lines = [table.columns, ["---"] * len(table.columns)]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in [map(_safe, lines[0]), lines[1]])
    body = "\n".join(f"| {' | '.join(map(_safe, cells))} |" for cells in table.rows)
    note = f"\n{_safe(table.note)}\n" if table.note else ""
    return f"{text}\n{body}\n{note}"


def _safe(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", visible(" ".join(text.split())))
