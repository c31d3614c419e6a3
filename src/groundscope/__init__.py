"""groundscope finds the parts of a RAG answer that its context does not support.

The public names are imported on first use, so that ``import groundscope`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from groundscope._version import __version__

if TYPE_CHECKING:
    from groundscope.errors import GroundscopeError
    from groundscope.example import Example, Label
    from groundscope.lm.language_model import LanguageModel
    from groundscope.lm.prompt.layout import Layout
    from groundscope.lm.prompt.template import PromptTemplate
    from groundscope.scope import Scope
    from groundscope.trace.trace import Trace
    from groundscope.verdict import Span, Verdict

_HOMES = {
    "Example": "groundscope.example",
    "GroundscopeError": "groundscope.errors",
    "Label": "groundscope.example",
    "LanguageModel": "groundscope.lm.language_model",
    "Layout": "groundscope.lm.prompt.layout",
    "PromptTemplate": "groundscope.lm.prompt.template",
    "Scope": "groundscope.scope",
    "Span": "groundscope.verdict",
    "Trace": "groundscope.trace.trace",
    "Verdict": "groundscope.verdict",
}

__all__ = [
    "Example",
    "GroundscopeError",
    "Label",
    "LanguageModel",
    "Layout",
    "PromptTemplate",
    "Scope",
    "Span",
    "Trace",
    "Verdict",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'groundscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
