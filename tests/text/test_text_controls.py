from hypothesis import given
from hypothesis import strategies as st

from groundscope import Example
from groundscope.text.controls import response_words, word_novelty, words_of


def test_counts_words_and_those_that_are_new():
    example = Example("When was it built?", ("The tower is old.", "It is tall."), "The tower was built in 1887, TALL.")
    assert response_words(example) == 7
    assert word_novelty(example) == 2 / 7  # "in" and "1887"


def test_no_words_no_novelty():
    assert word_novelty(Example("", (), " ... ")) == 0
    assert response_words(Example("", (), "")) == 0


def test_without_passages_every_word_is_new():
    assert word_novelty(Example("", (), "one two")) == 1


def test_words_are_not_joined_across_passages():
    assert word_novelty(Example("", ("note", "book"), "notebook")) == 1


@given(st.text(), st.text())
def test_novelty_is_a_share_and_copies_have_none(passage, response):
    assert 0 <= word_novelty(Example("", (passage,), response)) <= 1
    assert word_novelty(Example("", (passage,), passage)) == 0
    assert len(words_of(response)) == response_words(Example("", (), response))
