"""An example together with what a model read of it: what detectors learn from and are measured on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from groundscope.errors import InputError
from groundscope.example import Example
from groundscope.trace.trace import Trace


@dataclass(frozen=True, eq=False)
class TracedExample:
    """One example and its trace.

    Attributes:
        example: Texts, labels, task, writer, source.
        trace: The signals of its response.
    """

    example: Example
    trace: Trace

    @property
    def group(self) -> str:
        """What must never stand on both sides of a split: the source, or failing that the passages."""
        return self.example.group


Traced = Sequence[TracedExample]


def examples_of(data: Traced | Sequence[Example]) -> list[Example]:
    """Return the examples behind traced ones; those that nobody has read yet are returned as they are."""
    return [item.example if isinstance(item, TracedExample) else item for item in data]


def check_one_model(data: Traced) -> None:
    """Refuse traces that several models made, or one model under several templates.

    Raises:
        InputError: If they are.
    """
    for item in data:
        if item.trace.fingerprint != data[0].trace.fingerprint:
            raise InputError(
                f"All traces must be of one model and template. Example {item.example.id!r} was read by "
                f"{item.trace.model!r}, the first one by {data[0].trace.model!r}, or under another template."
            )
