from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundscope.errors import InputError
from groundscope.evaluate.metrics.spans import character_counts, total


def test_by_hand():
    # found 2..6 and 8..10, marked 4..9: both 4, 5 and 8.
    found = character_counts(12, [(2, 6), (8, 10)], [(4, 9)])
    assert (found.hit, found.false_alarm, found.missed) == (3, 3, 2)
    assert found.precision == 0.5
    assert found.recall == 3 / 5
    assert found.f1 == pytest.approx(6 / 11)
    assert found.iou == 3 / 8


def test_overlapping_ranges_count_once():
    assert character_counts(10, [(0, 4), (2, 6)], [(0, 6), (1, 2)]).iou == 1


def test_micro_average_of_answers():
    found = total([character_counts(4, [(0, 4)], [(0, 2)]), character_counts(4, [], [(0, 2)])])
    assert (found.precision, found.recall) == (0.5, 0.5)


def test_nothing_found_and_nothing_marked():
    found = character_counts(3, [], [])
    assert found.f1 != found.f1 and found.iou != found.iou


def test_a_range_outside_is_refused():
    with pytest.raises(InputError, match="0 <= start <= end <= 3"):
        character_counts(3, [(1, 4)], [])


ranges = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted).map(tuple), max_size=4)


@given(ranges, ranges)
def test_symmetric_and_bounded(one, other):
    found, swapped = character_counts(20, one, other), character_counts(20, other, one)
    assert found.hit == swapped.hit and found.false_alarm == swapped.missed
    if found.hit + found.false_alarm + found.missed:
        assert 0 <= found.iou <= found.f1 <= 1
        assert (found.iou == 1) == (found.f1 == 1)
