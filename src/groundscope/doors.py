"""The doors: what users call on an object although a room further along the way does the work.

Imports point one way (``docs/architecture.md``), and a user should not have to know where a room is: a language model
traces, a verdict prints itself. Such a method is thin, and goes through its entry here. Nothing else in this package
imports its own modules by name, apart from the public names of ``groundscope`` and the table of built-in detectors.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

DOORS = {
    "LanguageModel.trace": "groundscope.trace.engine:trace_one_or_many",
    "LearnedDetector.from_pretrained": "groundscope.detectors.saved.folder:load_detector",
    "LearnedDetector.push_to_hub": "groundscope.detectors.saved.folder:push_detector",
    "LearnedDetector.save_pretrained": "groundscope.detectors.saved.folder:save_detector",
    "Scope.generate": "groundscope.mitigate.answering.answer:write_answer",
    "Verdict.__str__": "groundscope.report.verdict.terminal:format_verdict",
    "Verdict._repr_html_": "groundscope.report.verdict.html:notebook_frame",
    "Verdict.to_html": "groundscope.report.verdict.html:render_page",
}


def open_door(name: str) -> Callable[..., Any]:
    """Return the function behind a door; its module is imported now, not before."""
    module, _, function = DOORS[name].partition(":")
    return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]
