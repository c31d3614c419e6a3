"""Detectors that read no signal of the engine but what they gather themselves: by asking, sampling or counting."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from groundscope.detectors.base import Detector, Scores
from groundscope.errors import InputError

if TYPE_CHECKING:
    from groundscope.lm.prompt.layout import Layout
    from groundscope.trace.trace import Trace


class GatheredDetector(Detector):
    """A detector whose one own signal is its token score."""

    @property
    def signals(self) -> tuple[str, ...]:
        """No signal of the engine."""
        return ()

    @property
    @abstractmethod
    def own_signal(self) -> str:
        """Name of the array that it gathers; whatever changes the array is in the name."""

    @property
    def own_signals(self) -> tuple[str, ...]:
        """Names of the arrays that it gathers."""
        return (self.own_signal,)

    def token_scores(self, trace: Trace) -> Scores:
        """Score every response token.

        Raises:
            InputError: If the trace lacks what the detector gathers.
        """
        if self.own_signal not in trace:
            raise InputError(
                f"The trace holds no {self.own_signal!r}, which the detector {self.name!r} gathers itself. Read the "
                "examples with groundscope.reading.Reader or gs.Scope and this detector, or add what its gather() "
                "returns to the trace's signals."
            )
        return trace[self.own_signal].astype(np.float64)


def per_token(layout: Layout, spans: Sequence[tuple[int, int]], values: Sequence[float]) -> npt.NDArray[np.float64]:
    """Give each response token the highest value among the stretches of text that it overlaps.

    Args:
        layout: With offsets.
        spans: Half-open code-point ranges in the response, in order and disjoint.
        values: One number for each.

    Returns:
        (token,) values; NaN for tokens in no stretch.

    Raises:
        InputError: If the layout has no offsets.
    """
    if layout.response_offsets is None:
        raise InputError("The layout has no offsets, so its tokens cannot be found in the text. Lay out an Example.")
    starts, ends = np.array([start for start, _ in spans]), np.array([end for _, end in spans])
    found = np.full(layout.response_length, np.nan)
    for token, (start, end) in enumerate(np.asarray(layout.response_offsets).tolist()):
        first, last = np.searchsorted(ends, start, side="right"), np.searchsorted(starts, max(end, start + 1))
        if first < last:
            found[token] = max(values[first:last])
    return found
