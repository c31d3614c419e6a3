import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundscope.data.labelling.gold import contains_answer, gold_fields, normalize_answer
from groundscope.errors import InputError
from groundscope.example import Example


def test_case_punctuation_articles_and_spaces_do_not_count():
    assert normalize_answer("The  U.S. army, an `ally` of\nA.") == "us army ally of"


@given(st.text(max_size=40))
def test_normalising_once_is_enough(text):
    once = normalize_answer(text)
    # Removing an article can bring two words together only by white space, so nothing new appears.
    assert normalize_answer(once) == once


def test_any_answer_as_a_substring_will_do():
    assert contains_answer("It was Robert A. Smith, Jr.", ["John", "robert smith"])
    assert not contains_answer("It was Robert.", ["Robert Smith"])


def test_whole_words_are_an_option():
    assert contains_answer("in 1887", ["18"]) and not contains_answer("in 1887", ["18"], whole_words=True)
    assert contains_answer("in 18", ["18"], whole_words=True)


def test_answers_without_a_word_never_match():
    with pytest.raises(InputError, match="no gold answer"):
        contains_answer("The end.", ["the", "...", ""])


def test_examples_are_labelled_as_a_whole():
    example = Example("q", ("c",), "It is Rome.", extra={"answers": ["Rome"], "one": "Paris"})
    assert gold_fields(example, "answers") == {"labels": [], "hallucinated": False, "label_kind": "response"}
    assert gold_fields(example, "one") == {"labels": None, "hallucinated": True, "label_kind": "response"}


@pytest.mark.parametrize("extra", [{}, {"answers": 3}, {"answers": ["a", 3]}, {"answers": []}, {"answers": None}])
def test_missing_answers_are_refused(extra):
    with pytest.raises(InputError, match="gold answer"):
        gold_fields(Example("q", ("c",), "r", extra=extra), "answers")
