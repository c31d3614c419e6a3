"""Windows of tokens: the unit that Lookback Lens and AggTruth learn from."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from groundscope.learn.labels import Labels

Ranges = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def window_ranges(tokens: int, size: int = 8, stride: int = 1, *, partial: bool = True) -> Ranges:
    """Return half-open token ranges of sliding windows, (window, 2).

    Args:
        tokens: Length of the response.
        size: Tokens in a window.
        stride: Tokens from one window to the next; the last window always reaches the end.
        partial: Whether a response shorter than ``size`` is one window; otherwise it has none.
    """
    if tokens < size:
        return np.array([[0, tokens]] if partial and tokens else np.empty((0, 2)), dtype=np.int64).reshape(-1, 2)
    starts = np.arange(0, tokens - size + 1, stride, dtype=np.int64)
    if starts[-1] != tokens - size:
        starts = np.append(starts, tokens - size)
    return np.stack([starts, starts + size], axis=1)


def window_means(values: npt.NDArray[np.floating], ranges: Ranges) -> Floats:
    """Return the mean of (token, ...) values over each range, (window, ...)."""
    sums = np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0, dtype=np.float64)])
    lengths = (ranges[:, 1] - ranges[:, 0]).reshape(-1, *[1] * (values.ndim - 1))
    means: Floats = (sums[ranges[:, 1]] - sums[ranges[:, 0]]) / lengths
    return means


def window_labels(labels: Labels, ranges: Ranges) -> Labels:
    """Return whether any token of each range is hallucinated, (window,)."""
    counts = np.concatenate([[0], np.cumsum(labels)])
    marked: Labels = counts[ranges[:, 1]] > counts[ranges[:, 0]]
    return marked


def spread(scores: Floats, ranges: Ranges, tokens: int) -> Floats:
    """Give each token the mean score of the windows that hold it, (token,).

    Raises:
        ValueError: If a token is in no window.
    """
    edges = np.zeros((2, tokens + 1))
    for row, weight in ((0, scores), (1, np.ones(len(scores)))):
        np.add.at(edges[row], ranges[:, 0], weight)
        np.subtract.at(edges[row], ranges[:, 1], weight)
    total, count = np.cumsum(edges, axis=1)[:, :tokens]
    if (count < 0.5).any():
        raise ValueError("Every token must lie in a window.")
    mean: Floats = total / count
    return mean
