from __future__ import annotations

import pytest

from groundscope.text.visible import content_of


@pytest.mark.parametrize(
    "text",
    ["", " \n\t\u3000", "\u200b\u200d\ufeff", "\x00\x1b", "\u2060\u00ad", "\ufe0f", "\U000e0100", "\u3164", "\u2800"],
)
def test_a_text_without_anything_visible_shows_nothing(text):
    assert content_of(text) == "nothing"


@pytest.mark.parametrize("text", ["...", " - ", "\u200b?!", "\u2026\u3002", "\u2605\ufe0f"])
def test_punctuation_and_symbols_are_marks(text):
    assert content_of(text) == "marks"


@pytest.mark.parametrize("text", ["a", "\u200b7", "...\u6771", "\u0967", "\u00bd", "\U0001d7d8", "(\u0639)"])
def test_a_letter_or_digit_of_any_script_makes_words(text):
    assert content_of(text) == "words"
