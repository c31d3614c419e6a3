from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from groundscope.text.words import clusters, is_extender, word_spans

TEXTS = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from([*"ab1.,:%'-’ \n你กa", "\u200d", "\u0301", "\ufe0f", "👩", "🏽", "🇫", "\x00"]),
    ),
    max_size=60,
)


def words(text: str) -> list[str]:
    return [text[start:end] for start, end in word_spans(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("I don't, it’s well-known.", ["I", "don't", ",", "it’s", "well-known", "."]),
        ("0.002 1,000 50% at 10:30.", ["0.002", "1,000", "50%", "at", "10:30", "."]),
        ("a.b a,b 1.a", ["a", ".", "b", "a", ",", "b", "1", ".", "a"]),
        ("$5.50 -3 % 'quoted'", ["$", "5.50", "-", "3", "%", "'", "quoted", "'"]),
        ("**999**", ["*", "*", "999", "*", "*"]),
        ("snake_case x-", ["snake", "_", "case", "x", "-"]),
        ("東京は2024年🎉", ["東", "京", "は", "2024", "年", "🎉"]),
        ("cafe\u0301s नमस्ते", ["cafe\u0301s", "नमस्ते"]),
        ("👨‍👩‍👧👍🏽🇫🇷🇩🇪1️⃣❤️", ["👨‍👩‍👧", "👍🏽", "🇫🇷", "🇩🇪", "1️⃣", "❤️"]),
        ("a\x00b\x1b", ["a", "\x00", "b", "\x1b"]),
        ("می‌خواهم", ["می‌خواهم"]),
        ("서울은 크다", ["서울은", "크다"]),
    ],
)
def test_known_cases(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@given(TEXTS)
@example(" \u0301a")
@example("\u200d \u200da")
def test_words_hold_every_visible_character_and_cut_no_cluster(text: str) -> None:
    spans = word_spans(text)
    borders = {0} | {end for _, end in clusters(text)}
    position = 0
    for start, end in spans:
        assert text[position:start].strip() == ""
        assert start >= position
        assert end > start
        assert not any(char.isspace() for char in text[start:end])
        assert {start, end} <= borders
        position = end
    assert text[position:].strip() == ""


@given(TEXTS)
def test_clusters_tile_the_text_and_never_start_with_an_extender(text: str) -> None:
    parts = clusters(text)
    assert "".join(text[start:end] for start, end in parts) == text
    assert all(start < end for start, end in parts)
    for start, _ in parts[1:]:
        assert not is_extender(text[start]) or text[start - 1].isspace()
