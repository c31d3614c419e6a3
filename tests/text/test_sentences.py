from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from groundscope.text.sentences import split_sentences
from groundscope.text.words import clusters

ALPHABET = st.one_of(
    st.characters(exclude_categories=["Cs"]),
    st.sampled_from([*".!?…。！？।؟ \n\t\r\"')]}*-1aAé你は🎉", "\u200d", "\u0301", "\ufe0f", "\x00", "\x1c", "•"]),
)
TEXTS = st.text(ALPHABET, max_size=80)


def pieces(text: str) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \n\t ", []),
        ("Dr. Li used 0.002 g. It failed.", ["Dr. Li used 0.002 g.", "It failed."]),
        ("J. K. Rowling wrote it. She won.", ["J. K. Rowling wrote it.", "She won."]),
        ("Use fruit, e.g. apples. Or i.e. Braeburn.", ["Use fruit, e.g. apples.", "Or i.e. Braeburn."]),
        (
            "The U.S. Senate met. He left the U.S. The vote failed.",
            ["The U.S. Senate met.", "He left the U.S.", "The vote failed."],
        ),
        ("It rose at 5 p.m. on Monday. Then it fell.", ["It rose at 5 p.m. on Monday.", "Then it fell."]),
        (
            "Apple Inc. Chairman Cook spoke. He works for Apple Inc. The end.",
            ["Apple Inc. Chairman Cook spoke.", "He works for Apple Inc.", "The end."],
        ),
        ("See Fig. 2 and No. 5. No. It is not.", ["See Fig. 2 and No. 5.", "No.", "It is not."]),
        ("Well... maybe. Wait… Now.", ["Well... maybe.", "Wait…", "Now."]),
        ("1. Mix it.\n2. Bake it.", ["1. Mix it.", "2. Bake it."]),
        ("  a. First\n  b. Second", ["a. First", "b. Second"]),
        ("It opened in 1889. The tower is tall.", ["It opened in 1889.", "The tower is tall."]),
        (
            "See https://ex.org/a.b?c=d.e for more. Or www.ex.org. Done.",
            ["See https://ex.org/a.b?c=d.e for more.", "Or www.ex.org.", "Done."],
        ),
        ('She said "Stop." Then she left.', ['She said "Stop."', "Then she left."]),
        ('"Really?" he asked. "Yes!" she said.', ['"Really?" he asked.', '"Yes!" she said.']),
        ("It is so (see p. 4.) Next.", ["It is so (see p. 4.)", "Next."]),
        ("Cited.[1][2, 3] Next one.", ["Cited.[1][2, 3]", "Next one."]),
        ("**Bold end.** Next.", ["**Bold end.**", "Next."]),
        ("东京是首都。它很大！真的吗？是", ["东京是首都。", "它很大！", "真的吗？", "是"]),
        ("「行こう。」次です。", ["「行こう。」", "次です。"]),
        ("यह सही है। वह गलत है॥", ["यह सही है।", "वह गलत है॥"]),
        ("هل هذا صحيح؟ نعم.", ["هل هذا صحيح؟", "نعم."]),
        ("Title\n\n- one\n- two", ["Title", "- one", "- two"]),
        ("Items: • one • two", ["Items:", "• one", "• two"]),
        ("all small. no capitals at all.", ["all small.", "no capitals at all."]),
        ("Great! 🎉 Next. 100 came.", ["Great!", "🎉 Next.", "100 came."]),
        ("What?! No!!! Yes.", ["What?!", "No!!!", "Yes."]),
        ("No stop at the end", ["No stop at the end"]),
    ],
)
def test_known_cases(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


@given(TEXTS)
@example("。\u0301A.\u200d")
@example("a\x00b. \x1cC")
def test_invariants(text: str) -> None:
    spans = split_sentences(text)
    borders = {0, len(text)} | {end for _, end in clusters(text)}
    position = 0
    for start, end in spans:
        assert text[position:start].strip() == ""  # nothing visible is left out
        assert start >= position
        assert start < end
        assert text[start:end] == text[start:end].strip()
        assert {start, end} <= borders
        position = end
    assert text[position:].strip() == ""


@given(TEXTS, TEXTS)
def test_lines_do_not_influence_each_other(first: str, second: str) -> None:
    first, second = "Ab " + first, "Ab " + second  # both hold a capital, so case counts in both
    assert pieces(f"{first}\n{second}") == pieces(first) + pieces(second)


@pytest.mark.parametrize("unit", [".", ". ", '!"', "a. ", "e.g. ", " ", "\n", "[1]", ".[1", "(", ". (", "•  ", "。'"])
def test_time_grows_linearly(unit: str) -> None:
    text = unit * (200_000 // len(unit)) + "x"
    begin = time.perf_counter()
    split_sentences(text)
    assert time.perf_counter() - begin < 5
