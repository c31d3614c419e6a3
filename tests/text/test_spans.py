from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundscope.errors import InputError
from groundscope.text.spans import aggregate_units, find_spans, smooth
from groundscope.text.words import word_spans

NAN = float("nan")
SCORES = st.lists(st.one_of(st.just(NAN), st.floats(-1e6, 1e6)), max_size=30)


def tokens_of(text: str) -> list[tuple[int, int]]:
    """One token per word, with the space before it, as tokenizers cut."""
    return [(start - 1 if start and text[start - 1] == " " else start, end) for start, end in word_spans(text)]


def found(text: str, scores: list[float], threshold: float = 1.0, **options: int) -> list[tuple[str, float]]:
    spans = find_spans(text, tokens_of(text), np.array(scores), threshold, **options)
    return [(text[start:end], pytest.approx(score)) for start, end, score in spans]


@st.composite
def tokenised(draw: st.DrawFn) -> tuple[str, list[tuple[int, int]], np.ndarray]:
    text = draw(
        st.text(
            st.sampled_from("ab1 .,-'(é\u0301你🎉\u200d\n%") | st.characters(exclude_categories=["Cs"]),
            max_size=40,
        )
    )
    cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=20)))
    offsets = []
    for start, end in itertools.pairwise(cuts):
        offsets += [(start, end)] * draw(st.integers(0, 2))  # characters in no token; tokens that share a range
    scores = [draw(st.one_of(st.just(NAN), st.floats(-5, 5))) for _ in offsets]
    return text, offsets, np.array(scores, dtype=np.float32)


def test_smooth_is_a_centred_mean_that_skips_missing_scores() -> None:
    scores = np.array([1.0, 2.0, NAN, 6.0, 8.0])
    np.testing.assert_allclose(smooth(scores, 3), [1.5, 1.5, NAN, 7.0, 7.0])
    np.testing.assert_allclose(smooth(scores, 2), [1.5, 2.0, NAN, 7.0, 8.0])
    np.testing.assert_allclose(smooth(scores, 99), [4.25, 4.25, NAN, 4.25, 4.25])
    np.testing.assert_array_equal(smooth(scores, 1), scores)
    assert smooth(np.array([]), 3).shape == (0,)


@given(SCORES, st.integers(1, 70))
def test_smooth_equals_the_definition(scores: list[float], window: int) -> None:
    values = np.array(scores, dtype=np.float64)
    left, right = (window - 1) // 2, window // 2
    expected = [
        NAN if math.isnan(value) else np.nanmean(values[max(0, i - left) : i + right + 1])
        for i, value in enumerate(scores)
    ]
    np.testing.assert_allclose(smooth(values, window), expected, rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("window", [0, -1, 1.5, True, "3"])
def test_smooth_refuses_a_bad_window(window: object) -> None:
    with pytest.raises(InputError, match="window"):
        smooth(np.zeros(3), window)  # type: ignore[arg-type]


def test_the_wrong_year_is_found_on_word_borders() -> None:
    text = "It was completed in 1887."
    offsets = [(0, 2), (2, 6), (6, 16), (16, 19), (19, 20), (20, 22), (22, 24), (24, 25)]
    scores = np.array([0, 0, 0, 0, 0, 1.5, 2.5, 0.2])
    assert find_spans(text, offsets, scores, 1.0) == [(20, 24, 2.0)]


def test_a_gap_of_one_word_and_any_punctuation_is_bridged() -> None:
    assert found("one two three four", [2, 0, 2, 0]) == [("one two three", 4 / 3)]
    assert found("one two three four", [2, 0, 0, 2]) == [("one", 2), ("four", 2)]
    assert found("one two three four", [2, 0, 2, 0], max_gap=0) == [("one", 2), ("three", 2)]
    assert found("one, (two) three", [2, 0, 0, 2, 0, 0], max_gap=0) == [("one, (two", 1)]


def test_an_unscored_gap_is_not_bridged() -> None:
    assert found("one two three", [2, NAN, 2]) == [("one", 2), ("three", 2)]
    text = "one two three"
    assert find_spans(text, [(0, 3), (8, 13)], np.array([2.0, 2.0]), 1) == [(0, 3, 2.0), (8, 13, 2.0)]
    half_scored = [(0, 3), (3, 5), (5, 7), (7, 13)]
    apart = [(0, 3, 2.0), (8, 13, 2.0)]
    assert find_spans(text, half_scored, np.array([2.0, 0.0, NAN, 2.0]), 1) == apart
    assert find_spans(text, half_scored, np.array([2.0, 0.0, 0.0, 2.0]), 1) == [(0, 13, 1.0)]


def test_punctuation_at_the_ends_is_trimmed() -> None:
    assert found("(one) two.", [2, 2, 2, 0, 0]) == [("one", 2)]
    assert found("so ... two", [0, 2, 2, 2, 0]) == [("...", 2)]
    assert found("costs $5 now", [0, 2, 2, 0]) == [("$5", 2)]


def test_short_spans_are_dropped() -> None:
    assert found("I am", [2, 0]) == []
    assert found("I am", [2, 0], min_chars=1) == [("I", 2)]


def test_a_word_takes_the_mean_of_its_scored_tokens() -> None:
    text = "unbelievable"
    offsets = [(0, 2), (2, 9), (9, 12)]
    assert find_spans(text, offsets, np.array([3.0, NAN, 1.0]), 2.0) == [(0, 12, 2.0)]
    assert find_spans(text, offsets, np.array([3.0, NAN, 0.9]), 2.0) == []


def test_pieces_of_one_character_share_its_range() -> None:
    text = "東京🎉"
    offsets = [(0, 1), (1, 2), (2, 3), (2, 3), (2, 3)]
    assert find_spans(text, offsets, np.array([0, 0, 1, 2, 3]), 2.0, min_chars=1) == [(2, 3, 2.0)]


def test_the_same_text_twice_is_told_apart_by_offset() -> None:
    assert find_spans("Paris Paris", [(0, 5), (5, 11)], np.array([0.0, 2.0]), 1.0) == [(6, 11, 2.0)]


def test_nothing_to_score() -> None:
    assert find_spans("", [], np.array([]), 0.0) == []
    assert find_spans("abc", [], np.array([]), 0.0) == []
    assert found("abc", [NAN]) == []


@pytest.mark.parametrize(
    ("offsets", "scores", "threshold", "message"),
    [
        ([(0, 1)], [1.0, 2.0], 0.0, "one offset range per token"),
        ([(0, 9)], [1.0], 0.0, "Token 0 has"),
        ([(2, 1)], [1.0], 0.0, "Token 0 has"),
        ([(0, 1)], [1.0], NAN, "threshold"),
        ([(0, 1)], [[1.0]], 0.0, "one-dimensional"),
    ],
)
def test_bad_input_is_refused(offsets: list, scores: list, threshold: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_spans("abc", offsets, np.array(scores), threshold)


@given(tokenised(), st.floats(-5, 5), st.integers(1, 4), st.integers(0, 3))
def test_spans_are_ordered_disjoint_and_on_word_borders(
    case: tuple[str, list[tuple[int, int]], np.ndarray], threshold: float, min_chars: int, max_gap: int
) -> None:
    text, offsets, scores = case
    words = word_spans(text)
    position = 0
    for start, end, score in find_spans(text, offsets, scores, threshold, min_chars=min_chars, max_gap=max_gap):
        assert position <= start < end <= len(text)
        assert start in {s for s, _ in words}
        assert end in {e for _, e in words}
        assert sum(not char.isspace() for char in text[start:end]) >= min_chars
        assert np.nanmin(scores) - 1e-6 <= score <= np.nanmax(scores) + 1e-6
        position = end


@given(tokenised(), st.floats(-5, 5), st.floats(0, 5))
def test_a_lower_threshold_never_uncovers_a_word(
    case: tuple[str, list[tuple[int, int]], np.ndarray], threshold: float, step: float
) -> None:
    text, offsets, scores = case

    def covered(limit: float) -> set[int]:
        return {
            i
            for start, end, _ in find_spans(text, offsets, scores, limit)
            for i in range(start, end)
            if text[i].isalnum()
        }

    assert covered(threshold) <= covered(threshold - step)


@given(tokenised())
def test_nothing_unscored_is_covered_alone(case: tuple[str, list[tuple[int, int]], np.ndarray]) -> None:
    text, offsets, scores = case
    assert find_spans(text, offsets, np.full(len(offsets), NAN), -math.inf) == []
    for start, end, _ in find_spans(text, offsets, scores, -math.inf, min_chars=1):
        for word in word_spans(text):
            if start <= word[0] and word[1] <= end:
                assert aggregate_units([word], offsets, scores)[0] is not None


def test_sentence_scores_are_means_of_their_tokens() -> None:
    offsets = [(0, 3), (3, 6), (6, 9), (6, 9)]
    scores = np.array([1.0, NAN, 4.0, 6.0])
    assert aggregate_units([(0, 6), (3, 6), (4, 9), (9, 12)], offsets, scores) == [1.0, None, 5.0, None]
    assert aggregate_units([], offsets, scores) == []
