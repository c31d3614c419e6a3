"""Units that a probe learns from: windows, predefined spans or whole responses of one response's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from groundscope.example import Example
from groundscope.learn.labels import Labels, token_labels
from groundscope.learn.windows import Floats, Ranges, window_labels, window_means, window_ranges
from groundscope.lm.prompt.layout import Layout


@dataclass(frozen=True, eq=False)
class Units:
    """Sets of tokens of one response, each with a label.

    Attributes:
        ranges: Half-open, non-empty token ranges, (range, 2).
        owners: Which unit each range belongs to, ascending from 0 without a gap, (range,).
        labels: Whether each unit is hallucinated, (unit,).
    """

    ranges: Ranges
    owners: npt.NDArray[np.int64]
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)

    def means(self, values: npt.NDArray[np.floating]) -> Floats:
        """Return the mean of (token, feature) values over the tokens of each unit, (unit, feature)."""
        means = window_means(values, self.ranges)
        if len(self.ranges) == len(self.labels):
            return means
        lengths = (self.ranges[:, 1] - self.ranges[:, 0]).astype(np.float64)
        total = np.zeros((len(self), *values.shape[1:]))
        np.add.at(total, self.owners, means * lengths.reshape(-1, *[1] * (values.ndim - 1)))
        counts = np.bincount(self.owners, weights=lengths, minlength=len(self))
        whole: Floats = total / counts.reshape(-1, *[1] * (values.ndim - 1))
        return whole


def window_units(marked: Labels, size: int = 8, stride: int = 1, *, partial: bool = True) -> Units:
    """Return sliding windows; one is hallucinated if any of its tokens is.

    Args:
        marked: Whether each token is hallucinated, (token,).
        size: See :func:`groundscope.learn.windows.window_ranges`; likewise the rest.
        stride: Tokens from one window to the next.
        partial: Whether a shorter response is one window.
    """
    ranges = window_ranges(len(marked), size, stride, partial=partial)
    return Units(ranges, np.arange(len(ranges)), window_labels(marked, ranges))


def run_units(marked: Labels) -> Units:
    """Return every longest stretch of tokens with the same label as a unit: no token is lost or counted twice.

    Args:
        marked: Whether each token is hallucinated, (token,).
    """
    edges = np.flatnonzero(np.diff(marked.astype(np.int8))) + 1
    borders = np.concatenate([[0], edges, [len(marked)]]).astype(np.int64)
    ranges = np.stack([borders[:-1], borders[1:]], axis=1)
    ranges = ranges[ranges[:, 1] > ranges[:, 0]]
    return Units(ranges, np.arange(len(ranges)), marked[ranges[:, 0]])


def listed_units(example: Example, layout: Layout) -> Units:
    """Return the predefined spans of the released Lookback Lens code: at most three units of one response.

    A faithful response is one unit. Otherwise the tokens before the span that is listed first are a faithful
    unit, the tokens of all spans together are one hallucinated unit, and the tokens after the span that is
    listed last are a faithful unit. What stands between spans is dropped. First and last go by the order in
    which the labels are listed, so with labels out of order a token may be in two units, as in that code.

    Which tokens a label covers follows :func:`groundscope.learn.labels.token_labels` (any overlap); the
    released code also counts a token that merely ends where a span starts.

    Raises:
        InputError: See :func:`groundscope.learn.labels.token_labels`.
    """
    marked = token_labels(example, layout)
    tokens = len(marked)
    if not marked.any():
        return run_units(marked)
    # token_labels has refused what lacks labels or offsets.
    offsets = np.asarray(layout.response_offsets)
    covered = [
        np.flatnonzero((offsets[:, 0] < label.end) & (label.start < offsets[:, 1])) for label in example.labels or ()
    ]
    covered = [found for found in covered if len(found)]
    before, after = (0, int(covered[0][0])), (int(covered[-1][-1]) + 1, tokens)
    spans = run_units(marked)
    parts = [([before], False), (spans.ranges[spans.labels].tolist(), True), ([after], False)]
    return _joined([(ranges, label) for ranges, label in parts if ranges[0][0] < ranges[0][1]])


def response_unit(label: bool, tokens: int) -> Units:
    """Return the whole response as one unit."""
    return Units(np.array([[0, tokens]]), np.zeros(1, dtype=np.int64), np.array([label]))


def _joined(parts: Sequence[tuple[Sequence[Sequence[int]], bool]]) -> Units:
    ranges = np.array([list(item) for part, _ in parts for item in part], dtype=np.int64)
    owners = np.repeat(np.arange(len(parts)), [len(part) for part, _ in parts])
    return Units(ranges, owners, np.array([label for _, label in parts]))
