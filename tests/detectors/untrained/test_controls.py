"""Detectors that read the words alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import groundscope as gs
from groundscope.detectors.untrained.controls import Length, Novelty
from groundscope.detectors.untrained.gathered import per_token
from groundscope.errors import InputError


def gathered(detector, lm, question, passages, response):
    example = gs.Example(question, passages, response)
    layout = lm.renderer().layout(example)
    trace = gs.Trace(layout, detector.gather(lm, example, layout))
    return layout, detector.token_scores(trace)


def marked(layout, scores):
    """The text of the tokens that score 1."""
    assert set(np.unique(scores)) <= {0.0, 1.0}
    keep = np.zeros(len(layout.response), dtype=bool)
    for (start, end), score in zip(layout.response_offsets, scores, strict=True):
        keep[start:end] |= score > 0
    return "".join(c if k else " " for c, k in zip(layout.response, keep, strict=True)).split()


def test_length_counts_words_and_says_so_at_every_token(tiny):
    layout, scores = gathered(Length(), tiny, "", ("p",), "It is 1,000 m high - isn't it?")
    assert (scores == 7).all() and len(scores) == layout.response_length
    assert Length().response_score(scores) == 7
    assert (gathered(Length(), tiny, "", ("p",), "塔很高。")[1] == 3).all()


@pytest.mark.parametrize(
    ("question", "passages", "response", "new"),
    [
        ("When was it built?", ("The Tower is old.",), "the tower was built in 1887.", ["in", "1887"]),
        ("", ("note", "book"), "notebook note book", ["notebook"]),
        ("", ("old tower",), "new tower, new roof, NEW roof", ["new", "new", "roof", "NEW", "roof"]),
        ("", ("塔很高。",), "塔不高。", ["不"]),
        ("塔？", ("",), "塔塔楼塔", ["楼"]),
        ("", ("the company’s STRASSE",), "The company's Straße", []),
        ("", ("Ａｂｃ ﬁne",), "abc fine", []),
        ("", ("cost: 5 %",), "!!! cost ???", []),
        ("", (), "all new.", ["all", "new"]),
        ("", ("café",), "cafe\N{COMBINING ACUTE ACCENT} 👍🏽", []),
    ],
)
def test_new_are_words_that_stand_in_neither_passages_nor_question(tiny, question, passages, response, new):
    layout, scores = gathered(Novelty(), tiny, question, passages, response)
    # A token may take a white space or mark to its word.
    assert [word.strip(".,") for word in marked(layout, scores)] == new


@settings(max_examples=30, deadline=None)
@given(st.text(min_size=1, max_size=30).filter(str.strip))
def test_a_copy_holds_nothing_new(tiny, text):
    try:
        text.encode()
        _, scores = gathered(Novelty(), tiny, "", (text,), text)
    except (UnicodeEncodeError, gs.errors.LayoutError):
        return
    assert (scores == 0).all()


def test_a_trace_without_what_was_gathered_is_refused(tiny):
    layout = tiny.renderer().layout(gs.Example("", ("p",), "r"))
    with pytest.raises(InputError, match=r"holds no 'word_novelty', which the detector 'novelty' gathers itself"):
        Novelty().token_scores(gs.Trace(layout, {}))


def test_layouts_without_text_are_refused(tiny):
    with pytest.raises(InputError, match="no offsets"):
        Novelty().gather(tiny, gs.Example("", ("p",), "r"), gs.Layout.from_ids([1], [2]))


def test_values_go_to_the_tokens_that_overlap():
    layout = gs.Layout.from_ids(
        [1], range(6), response="ab cd  e", response_offsets=np.array([[0, 1], [1, 2], [2, 4], [4, 5], [5, 6], [6, 8]])
    )
    got = per_token(layout, [(0, 2), (3, 5), (7, 8)], [1.0, 3.0, 2.0])
    np.testing.assert_array_equal(got, [1, 1, 3, 3, np.nan, 2])
    empty = gs.Layout.from_ids([1], [1, 2], response="ab", response_offsets=np.array([[0, 0], [1, 1]]))
    np.testing.assert_array_equal(per_token(empty, [(0, 2)], [5.0]), [5, 5])
    assert np.isnan(per_token(layout, [], [])).all()
