"""Trace: the signals of one example under one model; all that a detector ever sees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from groundscope.errors import InputError
from groundscope.lm.prompt.layout import Layout
from groundscope.trace.signals import spec_of

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Trace(Mapping[str, FloatArray]):
    """Named float32 arrays whose first axis is the response token.

    Attributes:
        layout: What was read.
        signals: The arrays; their axes are in :data:`groundscope.trace.signals.SIGNALS`.
        model: Name of the model that read.
        attention_layers: Which layers the ``layer`` axis of attention signals counts.
        blind_layers: Attention layers whose sliding window hides a part of the passages from some token.
        fingerprint: What a detector fitted on this trace must find again; empty for layouts made from ids.
    """

    layout: Layout
    signals: Mapping[str, FloatArray]
    model: str = ""
    attention_layers: tuple[int, ...] = ()
    blind_layers: int = 0
    fingerprint: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> FloatArray:
        if name in self.signals:
            return self.signals[name]
        spec_of(name)
        raise InputError(
            f"The signal {name!r} was not requested. This trace holds {', '.join(self.signals)}; "
            f"add {name!r} to the signals of lm.trace."
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.signals)

    def __len__(self) -> int:
        return len(self.signals)

    def __contains__(self, name: object) -> bool:
        return name in self.signals

    @property
    def tokens(self) -> int:
        """Number of response tokens."""
        return self.layout.response_length
