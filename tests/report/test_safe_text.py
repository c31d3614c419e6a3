from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from groundscope.report.safe_text import escape_name, split_hidden, visible


def test_what_drives_a_terminal_or_reorders_text_is_named() -> None:
    given_text = "a\x1b[2J\x00\x7f\x9b\r\n\t\u202e\u2066\ud800 ok"
    assert visible(given_text) == "a\\x1b[2J\\x00\\x7f\\x9b\\x0d\n\t\\u202e\\u2066\\ud800 ok"


def test_what_ordinary_text_needs_stays() -> None:
    text = "می\u200cخواهم 👩\u200d👧 \u200fא\u200e é\u0301 \ufeff\n\t"
    assert visible(text) == text


@given(st.text(st.characters()))
def test_pieces_joined_are_the_text_and_no_control_character_gets_through(text: str) -> None:
    pieces = list(split_hidden(text))
    assert "".join(piece for piece, _ in pieces) == text
    assert visible(text) == "".join(escape_name(piece) if hidden else piece for piece, hidden in pieces)
    shown = visible(text)
    assert not [char for char in shown if unicodedata.category(char) in ("Cc", "Cs") and char not in "\t\n"]
    shown.encode("utf-8")
