"""What all HTML pages share: templates that escape by themselves, our own assets, their hashes."""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined

from groundscope.report.safe_text import visible


def environment(**filters: Any) -> Environment:
    """Return a template environment: autoescape on, undefined names refused, hidden characters shown by name."""
    made = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        # Markup is our own; any other string may be a stranger's.
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    made.filters |= filters
    return made


@functools.cache
def asset(name: str) -> str:
    """Return a file of this package as text."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """Return the hash by which a content security policy admits a style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
