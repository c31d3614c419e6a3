"""Units that a probe learns from."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from learnables import example_of, layout_of, on_words

from groundscope.errors import InputError
from groundscope.example import Example
from groundscope.learn.units import Units, listed_units, response_unit, run_units, window_units

WORDS = [f"w{number}" for number in range(10)]
marks = hnp.arrays(np.bool_, st.integers(1, 30))


def members(units: Units) -> list[tuple[list[int], bool]]:
    out: list[tuple[list[int], bool]] = [([], bool(label)) for label in units.labels]
    for (start, end), owner in zip(units.ranges, units.owners, strict=True):
        out[owner][0].extend(range(start, end))
    return out


def listed(*spans: tuple[int, int]) -> list[tuple[list[int], bool]]:
    return members(listed_units(example_of(WORDS, *on_words(WORDS, *spans)), layout_of(WORDS)))


@given(marks)
def test_runs_hold_every_token_once_and_are_pure_and_longest(marked):
    found = members(run_units(marked))
    assert [token for tokens, _ in found for token in tokens] == list(range(len(marked)))
    for tokens, label in found:
        assert (marked[tokens] == label).all()
    assert all(one[1] != other[1] for one, other in pairwise(found))


def test_a_faithful_response_is_one_span_in_both_variants():
    assert listed() == members(run_units(np.zeros(10, dtype=bool))) == [(list(range(10)), False)]


def test_official_spans_are_three_units_at_most():
    assert listed((3, 5)) == [([0, 1, 2], False), ([3, 4], True), ([5, 6, 7, 8, 9], False)]
    # All spans are one unit; what stands between them is dropped.
    assert listed((2, 3), (6, 8)) == [([0, 1], False), ([2, 6, 7], True), ([8, 9], False)]
    assert listed((0, 4)) == [([0, 1, 2, 3], True), ([4, 5, 6, 7, 8, 9], False)]
    assert listed((4, 10)) == [([0, 1, 2, 3], False), ([4, 5, 6, 7, 8, 9], True)]
    assert listed((0, 10)) == [(list(range(10)), True)]


def test_official_spans_go_by_the_order_of_the_list():
    # Before the span listed first, after the span listed last; tokens may be in two units.
    assert listed((6, 8), (2, 3)) == [([0, 1, 2, 3, 4, 5], False), ([2, 6, 7], True), ([3, 4, 5, 6, 7, 8, 9], False)]


def test_labels_that_touch_no_token_are_passed_over():
    example = example_of(["aa", "bb"], (2, 3), (3, 5))
    assert members(listed_units(example, layout_of(["aa", "bb"]))) == [([0], False), ([1], True)]


def test_paper_spans_lose_nothing():
    marked = np.zeros(10, dtype=bool)
    marked[[2, 6, 7]] = True
    assert members(run_units(marked)) == [
        ([0, 1], False), ([2], True), ([3, 4, 5], False), ([6, 7], True), ([8, 9], False)
    ]  # fmt: skip


def test_spans_of_a_response_labelled_as_a_whole_are_refused():
    whole = Example("q", (), " ".join(WORDS), hallucinated=True, id="whole")
    with pytest.raises(InputError, match="'whole' is labelled as a whole"):
        listed_units(whole, layout_of(WORDS))


def test_short_responses_are_one_window_or_none():
    marked = np.array([False, True, False])
    assert members(window_units(marked)) == [([0, 1, 2], True)]
    assert len(window_units(marked, partial=False)) == 0
    assert window_units(marked, partial=False).means(np.ones((3, 4))).shape == (0, 4)


def test_a_response_is_one_unit():
    assert members(response_unit(True, 3)) == [([0, 1, 2], True)]


@given(marked=marks, data=st.data())
def test_means_equal_the_naive_ones(marked, data):
    values = data.draw(hnp.arrays(np.float32, (len(marked), 3), elements=st.floats(-4, 4, width=32)))
    words = [f"w{number}" for number in range(len(marked))]
    spans = [(int(t), int(t) + 1) for t in np.flatnonzero(marked)]
    order = data.draw(st.permutations(spans))
    official = listed_units(example_of(words, *on_words(words, *order)), layout_of(words))
    for units in (run_units(marked), window_units(marked, 4, 2), response_unit(True, len(marked)), official):
        want = [values[tokens].astype(np.float64).mean(axis=0) for tokens, _ in members(units)]
        np.testing.assert_allclose(units.means(values), np.array(want), atol=1e-12)
        assert len(units) == len(want)
