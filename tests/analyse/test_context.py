"""Sentences dropped and put in: as many as said, whole ones, the same every time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundscope import Example
from groundscope.analyse.context import drop_sentences, inject_sentences
from groundscope.errors import InputError
from groundscope.text.sentences import split_sentences

SENTENCES = [f"Sentence number {i} stands here." for i in range(20)]
EXAMPLE = Example("q", (" ".join(SENTENCES[:12]), "\n".join(SENTENCES[12:])), "r")
OTHER = ("Bees make honey. They are many.", "Rice is a grain.")


def sentences(passages):
    return [text[a:b] for text in passages for a, b in split_sentences(text)]


@given(st.floats(0, 1), st.integers(0, 1000))
def test_as_many_sentences_are_dropped_as_said(share, seed):
    kept = sentences(drop_sentences(EXAMPLE, share, seed))
    assert len(kept) == max(1, 20 - int(20 * share + 0.5)) and kept == [s for s in SENTENCES if s in kept]


@given(st.floats(0, 1), st.floats(0, 1), st.integers(0, 1000))
def test_a_larger_share_drops_and_injects_what_a_smaller_one_does(a, b, seed):
    low, high = sorted((a, b))
    assert set(sentences(drop_sentences(EXAMPLE, high, seed))) <= set(sentences(drop_sentences(EXAMPLE, low, seed)))
    more, fewer = (set(sentences(inject_sentences(EXAMPLE, OTHER, share, seed))) for share in (high, low))
    assert fewer <= more


@given(st.floats(0, 1), st.integers(0, 1000))
def test_what_is_injected_is_whole_and_the_document_stays(share, seed):
    found = sentences(inject_sentences(EXAMPLE, OTHER, share, seed))
    own = sentences(OTHER)
    assert [s for s in found if s in own] == own and len(found) == len(own) + int(20 * share + 0.5)
    assert set(found) <= {*own, *SENTENCES}


@given(st.lists(st.text(max_size=40), min_size=1, max_size=3))
def test_nothing_dropped_and_nothing_injected_changes_nothing(passages):
    example = Example("q", tuple(passages), "r")
    assert drop_sentences(example, 0.0) == example.passages
    assert inject_sentences(example, OTHER, 0.0) == OTHER
    assert inject_sentences(Example("q", (), "r"), OTHER, 1.0) == OTHER
    left = [text for text in drop_sentences(example, 1.0) if text.strip()]
    assert len(left) == any(text.strip() for text in passages)


def test_edges():
    assert sentences(inject_sentences(EXAMPLE, (), 1.0)) and drop_sentences(Example("q", (), "r"), 0.5) == ()
    for share in (-0.1, 1.5, True):
        with pytest.raises(InputError, match="share"):
            drop_sentences(EXAMPLE, share)
        with pytest.raises(InputError, match="share"):
            inject_sentences(EXAMPLE, OTHER, share)
