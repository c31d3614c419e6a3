from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_verdicts import flagged

from groundscope.report.verdict.scale import Scale
from groundscope.verdict import Threshold, TokenScore

SCORE = st.floats(-1e6, 1e6)


def scale(scores: list[float], threshold: float | None) -> Scale:
    return Scale.of(
        flagged(
            tokens=tuple(TokenScore(0, 1, "T", score) for score in scores),
            threshold=None if threshold is None else Threshold(0.0, threshold, "test"),
        )
    )


def test_levels_are_relative_to_the_threshold() -> None:
    made = scale([-4.0, 3.0], 1.0)
    assert made == Scale(low=-4.0, mid=1.0, high=3.0)
    assert [made.level(score) for score in (-9, -4, -1.5, 1, 2, 3, 9)] == [0, 0, 0.25, 0.5, 0.75, 1, 1]


def test_a_token_just_over_the_line_is_not_the_strongest() -> None:
    made = scale([-3.0, 1.1], 1.0)
    assert made.high == 2.0
    assert made.level(1.1) == pytest.approx(0.55)


def test_without_threshold_the_middle_of_the_range_takes_its_place() -> None:
    assert scale([0.0, 4.0], None) == Scale(0.0, 2.0, 4.0)
    assert scale([], None).level(1.0) == 0.5


@given(st.lists(SCORE, max_size=6), st.none() | SCORE, SCORE, SCORE)
def test_levels_lie_in_range_and_keep_the_order(
    scores: list[float], threshold: float | None, one: float, other: float
) -> None:
    made = scale(scores, threshold)
    low, high = made.level(min(one, other)), made.level(max(one, other))
    assert 0 <= low <= high <= 1
    if threshold is not None:
        assert made.level(one) >= 0.5 or one < threshold
        assert made.level(one) <= 0.5 or one > threshold
