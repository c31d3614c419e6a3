"""Windows of tokens: which there are, their means and labels, and the way back to tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from groundscope.learn.windows import spread, window_labels, window_means, window_ranges

sizes = st.integers(1, 12)
tokens_ = st.integers(1, 40)


def test_windows_of_eight():
    assert window_ranges(10, 8).tolist() == [[0, 8], [1, 9], [2, 10]]
    assert window_ranges(8, 8).tolist() == [[0, 8]]
    assert window_ranges(3, 8).tolist() == [[0, 3]]
    assert window_ranges(3, 8, partial=False).shape == (0, 2)
    assert window_ranges(0, 8).shape == window_ranges(0, 8, partial=False).shape == (0, 2)
    assert window_ranges(10, 4, 4).tolist() == [[0, 4], [4, 8], [6, 10]]


@given(tokens=tokens_, size=sizes, data=st.data())
def test_every_token_lies_in_a_window_and_none_reaches_beyond(tokens, size, data):
    stride = data.draw(st.integers(1, size))
    ranges = window_ranges(tokens, size, stride)
    assert ranges.dtype == np.int64 and ranges[0, 0] == 0 and ranges[-1, 1] == tokens
    assert (ranges[:, 1] - ranges[:, 0] == min(size, tokens)).all()
    assert (np.diff(ranges[:, 0]) > 0).all() and (np.diff(ranges[:, 0]) <= stride).all()
    held = np.zeros(tokens, dtype=bool)
    for start, end in ranges:
        held[start:end] = True
    assert held.all()


@given(
    values=hnp.arrays(
        np.float32, st.tuples(tokens_, st.integers(1, 3), st.integers(1, 2)), elements=st.floats(-8, 8, width=32)
    ),
    size=sizes,
    stride=st.integers(1, 5),
)
def test_means_equal_the_naive_loop(values, size, stride):
    ranges = window_ranges(len(values), size, stride)
    want = [values[start:end].astype(np.float64).mean(axis=0) for start, end in ranges]
    np.testing.assert_allclose(window_means(values, ranges), want, atol=1e-12)
    np.testing.assert_allclose(window_means(values[:, 0, 0], ranges), [w[0, 0] for w in want], atol=1e-12)


@given(marked=hnp.arrays(np.bool_, tokens_), size=sizes, stride=st.integers(1, 5))
def test_a_window_is_marked_if_any_of_its_tokens_is(marked, size, stride):
    ranges = window_ranges(len(marked), size, stride)
    want = [bool(marked[start:end].any()) for start, end in ranges]
    assert window_labels(marked, ranges).tolist() == want


def test_a_label_at_the_last_token_marks_the_last_windows_only():
    marked = np.zeros(12, dtype=bool)
    marked[-1] = True
    assert window_labels(marked, window_ranges(12, 8)).tolist() == [False] * 4 + [True]
    marked = marked[::-1]
    assert window_labels(marked, window_ranges(12, 8)).tolist() == [True] + [False] * 4


@given(tokens=tokens_, size=sizes, data=st.data())
def test_tokens_get_the_mean_of_the_windows_that_hold_them(tokens, size, data):
    ranges = window_ranges(tokens, size, data.draw(st.integers(1, size)))
    scores = data.draw(hnp.arrays(np.float64, len(ranges), elements=st.floats(-4, 4)))
    want = [
        np.mean([s for s, (start, end) in zip(scores, ranges, strict=True) if start <= t < end]) for t in range(tokens)
    ]
    got = spread(scores, ranges, tokens)
    np.testing.assert_allclose(got, want, atol=1e-12)
    assert got.min() >= scores.min() - 1e-12 and got.max() <= scores.max() + 1e-12
    np.testing.assert_allclose(spread(np.full(len(ranges), 0.3), ranges, tokens), 0.3, atol=1e-12)


def test_a_token_in_no_window_is_refused():
    with pytest.raises(ValueError, match="Every token must lie in a window"):
        spread(np.ones(1), np.array([[0, 2]]), 3)
    with pytest.raises(ValueError, match="Every token must lie in a window"):
        spread(np.ones(2), np.array([[0, 2], [4, 6]]), 6)
