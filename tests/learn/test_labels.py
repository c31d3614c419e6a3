"""From character labels to tokens and responses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learnables import example_of, layout_of, on_words

import groundscope as gs
from groundscope.errors import InputError
from groundscope.example import Example, Label
from groundscope.learn.labels import (
    check_both_classes,
    check_kinds,
    has_token_labels,
    kind_of,
    response_label,
    token_labels,
)

WORDS = ["It", "was", "completed", "in", "1887", "."]


def marked(*labels: tuple[int, int], words: list[str] = WORDS) -> list[int]:
    return np.flatnonzero(token_labels(example_of(words, *labels), layout_of(words))).tolist()


@pytest.mark.parametrize(
    ("labels", "tokens"),
    [
        ([], []),
        ([(0, 1)], [0]),
        ([(1, 2)], [0]),
        # A blank belongs to no token here.
        ([(2, 3)], []),
        ([(2, 4)], [1]),
        ([(3, 6)], [1]),
        # The last character, alone.
        ([(25, 26)], [5]),
        ([(0, 26)], [0, 1, 2, 3, 4, 5]),
        # In any order, overlapping, twice.
        ([(20, 24), (0, 2)], [0, 4]),
        ([(7, 12), (10, 18), (7, 12)], [2, 3]),
    ],
)
def test_any_overlap_marks_a_token(labels, tokens):
    assert " ".join(WORDS)[20:24] == "1887"
    assert marked(*labels) == tokens


@given(words=st.lists(st.text("ab😀é", min_size=1, max_size=4), min_size=1, max_size=8), data=st.data())
def test_it_is_the_naive_overlap(words, data):
    text = " ".join(words)
    ranges = st.tuples(st.integers(0, len(text) - 1), st.integers(1, len(text))).filter(lambda r: r[0] < r[1])
    labels = data.draw(st.lists(ranges, max_size=3))
    layout = layout_of(words)
    covered = {index for start, end in labels for index in range(start, end)}
    want = [bool(covered & set(range(start, end))) for start, end in layout.response_offsets]
    assert token_labels(example_of(words, *labels), layout).tolist() == want


def test_pieces_of_one_character_are_marked_together():
    layout = gs.Layout.from_ids([1], [2, 3, 4], response="😀a", response_offsets=np.array([[0, 1], [0, 1], [1, 2]]))
    example = Example("", (), "😀a", labels=(Label(0, 1),), label_kind="span")
    assert token_labels(example, layout).tolist() == [True, True, False]


def test_a_token_of_no_width_is_never_marked():
    layout = gs.Layout.from_ids([1], [2, 3], response="ab", response_offsets=np.array([[0, 2], [2, 2]]))
    assert token_labels(Example("", (), "ab", labels=(Label(0, 2),)), layout).tolist() == [True, False]


def test_sentence_labels_count_as_spans_do():
    (sentence,) = on_words(WORDS, (0, 6))
    example = example_of(WORDS, sentence, label_kind="sentence")
    assert kind_of(example) == "sentence" and token_labels(example, layout_of(WORDS)).all()


def test_a_response_label_tells_tokens_only_where_it_is_clean():
    faithful = Example("", (), "a b", hallucinated=False, id="good")
    assert kind_of(faithful) == "response" and has_token_labels(faithful) and not response_label(faithful)
    assert token_labels(faithful, layout_of(["a", "b"])).tolist() == [False, False]
    bad = replace(faithful, hallucinated=True, id="bad")
    assert not has_token_labels(bad) and response_label(bad)
    with pytest.raises(InputError, match="'bad' is labelled as a whole; labels of spans or sentences"):
        token_labels(bad, layout_of(["a", "b"]))


def test_spans_that_are_only_kept_with_a_response_label_are_as_coarse_as_it_says():
    example = example_of(WORDS, (0, 2), label_kind="response")
    assert kind_of(example) == "response" and response_label(example)
    with pytest.raises(InputError, match="labelled as a whole"):
        token_labels(example, layout_of(WORDS))


def test_who_labels_nothing_is_asked_to():
    bare = Example("", (), "a", id="bare")
    for use in (kind_of, response_label, has_token_labels, lambda e: token_labels(e, layout_of(["a"]))):
        with pytest.raises(InputError, match="'bare' has no labels"):
            use(bare)


def test_a_layout_without_offsets_is_refused():
    with pytest.raises(InputError, match="without offsets"):
        token_labels(example_of(["a"], (0, 1)), gs.Layout.from_ids([1], [2]))


def test_an_unknown_kind_is_refused():
    with pytest.raises(InputError, match=r"label_kind of example 'e' must be one of .* Got 'word'"):
        kind_of(example_of(["a"], label_kind="word"))


def test_the_response_label_is_said_or_follows_from_the_spans():
    assert response_label(example_of(WORDS, (0, 2))) and not response_label(example_of(WORDS))
    assert not response_label(example_of(WORDS, (0, 2), hallucinated=False))


def test_kinds_that_are_too_coarse_are_refused_by_name():
    whole = Example("", (), "a", hallucinated=True, id="whole")
    check_kinds("m", [example_of(WORDS, (0, 2)), replace(whole, hallucinated=False)], ("span", "sentence"))
    with pytest.raises(InputError, match=r"m learns from labels of the kind 'span' or 'sentence'\. Example 'whole'"):
        check_kinds("m", [example_of(WORDS), whole], ("span", "sentence"))


@pytest.mark.parametrize("labels", [[], [False], [True, True]])
def test_one_class_is_refused_with_its_counts(labels):
    hallucinated = sum(labels)
    counts = f"Got {len(labels) - hallucinated} faithful and {hallucinated} hallucinated"
    with pytest.raises(InputError, match=f"m needs windows of both classes.*{counts}"):
        check_both_classes("m", np.array(labels, dtype=bool), "window")
    check_both_classes("m", np.array([True, False]), "window")
