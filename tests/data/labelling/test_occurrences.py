from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundscope.data.labelling.occurrences import check_label_text, occurrences, place_quotes
from groundscope.errors import InputError
from groundscope.example import Label


def test_all_places_are_found():
    assert occurrences("a cat, a dog, a cat", "a cat") == [(0, 5), (14, 19)]
    assert occurrences("aaaa", "aa") == [(0, 2), (2, 4)]
    assert occurrences("text", "") == [] and occurrences("text", "other") == []


def test_places_of_its_own_come_before_places_inside_words():
    assert occurrences("The start of art", "art") == [(13, 16)]
    assert occurrences("The start of smart", "art") == [(6, 9), (15, 18)]
    assert occurrences("1887 and 18", "18") == [(9, 11)]


def test_scripts_without_spaces_have_no_longer_words():
    assert occurrences("東京、大東京です", "東京") == [(0, 2), (4, 6)]


def test_characters_are_never_cut():
    assert occurrences("cafe\u0301 cafe", "cafe") == [(6, 10)]
    assert occurrences("👩\u200d🚀", "👩") == []


def test_quotes_are_placed_with_overlaps_merged():
    placed = place_quotes("It was built in 1887 in Rome.", ["in 1887", "1887 in Rome", "Paris"], type="judge")
    assert placed.labels == (Label(13, 28, "judge"),)
    assert placed.unmatched == ("Paris",)


def test_only_the_first_if_asked():
    text = "Rome and Rome"
    assert len(place_quotes(text, ["Rome"]).labels) == 2
    assert place_quotes(text, ["Rome"], "first").labels == (Label(0, 4),)
    with pytest.raises(InputError, match="'which' parameter"):
        place_quotes(text, ["Rome"], "last")


def test_added_quotation_marks_are_ignored_but_own_ones_kept():
    assert place_quotes("built in 1887", ['"in 1887"', " 'built' "]).labels == (Label(0, 5), Label(6, 13))
    assert place_quotes('He said "no".', ['"no"']).labels == (Label(8, 12),)


@given(st.text(alphabet="ab \u0301", max_size=12), st.text(alphabet="ab \u0301", max_size=3))
def test_places_hold_the_quote_and_do_not_overlap(text, quote):
    places = occurrences(text, quote)
    assert all(text[start:end] == quote for start, end in places)
    assert all(before[1] <= after[0] for before, after in pairwise(places))


def test_text_of_a_label_must_stand_at_its_offsets():
    check_label_text(0, "abc def", 4, 7, "def")
    check_label_text(0, "abc def", 4, 7, None)
    with pytest.raises(InputError, match=r"labels\[2\] carries the text 'deg'.*'def'"):
        check_label_text(2, "abc def", 4, 7, "deg")
