"""Chunks: exact offsets, limits, and cuts where a reader would cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from groundscope.errors import InputError
from groundscope.text.chunks import ChunkConfig, split_chunks

TEXTS = st.one_of(
    st.text(max_size=200),
    st.lists(st.sampled_from(["word", " ", ".", "\n", "\n\n", "日本。", "a" * 30, "é", "👩‍👩‍👧", "\t", "Mr. X"])).map(
        "".join
    ),
)


@given(TEXTS, st.integers(1, 40), st.data())
@example("a" * 100, 10, None)
def test_chunks_cover_the_text_and_keep_the_limits(text, size, data):
    overlap = data.draw(st.integers(0, size - 1)) if data else 3
    chunks = split_chunks(text, size, overlap)
    assert bool(chunks) == bool(text)
    assert all(0 < end - start <= size for start, end in chunks)
    for (start, end), (next_start, next_end) in pairwise(chunks):
        assert start < next_start <= end < next_end
        assert end - next_start <= overlap
    if chunks:
        assert chunks[0][0] == 0 and chunks[-1][1] == len(text)
        rest = "".join(text[max(start, before) : end] for (_, before), (start, end) in pairwise([(0, 0), *chunks]))
        assert rest == text


@given(TEXTS, st.integers(1, 40))
def test_without_overlap_chunks_are_a_partition(text, size):
    assert "".join(text[start:end] for start, end in split_chunks(text, size, 0)) == text


def pieces(text, size, overlap=0):
    return [text[start:end] for start, end in split_chunks(text, size, overlap)]


def test_paragraphs_before_lines_before_sentences_before_words_before_letters():
    assert pieces("First one.\n\nSecond one.\n\nThird.", 25) == ["First one.\n\nSecond one.\n\n", "Third."]
    assert pieces("one line\nanother line\nlast", 14) == ["one line\n", "another line\n", "last"]
    assert pieces("It rained. It snowed. Sun.", 14) == ["It rained. ", "It snowed. ", "Sun."]
    assert pieces("alpha beta gamma delta", 12) == ["alpha beta ", "gamma delta"]
    assert pieces("abcdefghij", 4) == ["abcd", "efgh", "ij"]


def test_a_long_paragraph_does_not_run_into_its_neighbours():
    text = "Short.\n\n" + "This sentence is fairly long. " * 3 + "\n\nEnd."
    got = pieces(text, 40)
    assert got[0] == "Short.\n\n" and got[-1] == "End." and len(got) == 5


def test_whole_words_are_repeated_as_far_as_the_overlap_allows():
    assert pieces("aaaa bbbb cccc dddd eeee", 15, 5) == ["aaaa bbbb cccc ", "cccc dddd eeee"]
    assert pieces("aaaa bbbb cccc dddd eeee", 15, 4) == ["aaaa bbbb cccc ", "dddd eeee"]


def test_a_text_that_fits_is_one_chunk():
    text = "One.\n\nTwo. Three\nfour"
    assert split_chunks(text) == [(0, len(text))]
    assert split_chunks("") == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"size": 0}, "'size' parameter .* at least 1"),
        ({"size": True}, "'size' parameter .* integer"),
        ({"size": 10, "overlap": 10}, "'overlap' parameter .* below size=10. Got 10"),
        ({"overlap": -1}, "'overlap' parameter"),
        ({"overlap": 1.5}, "'overlap' parameter"),
    ],
)
def test_impossible_limits_are_refused(arguments, words):
    with pytest.raises(InputError, match=words):
        split_chunks("text", **arguments)
    with pytest.raises(InputError, match=words):
        ChunkConfig(**arguments)


@pytest.mark.parametrize("embedder", ["", " ", 3])
def test_an_embedder_has_a_name(embedder):
    with pytest.raises(InputError, match="'embedder' parameter of ChunkConfig"):
        ChunkConfig(embedder=embedder)
