"""What of a text a reader can see: blank texts hold nothing, and marks alone claim nothing."""

from __future__ import annotations

import unicodedata
from typing import Literal

# Invisible, though Unicode calls them letters, marks or symbols: joiners, fillers, variation selectors.
_INVISIBLE = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
)


def content_of(text: str) -> Literal["nothing", "marks", "words"]:
    """Tell what a text shows.

    Returns:
        ``words`` if it holds a visible letter or digit of any script; ``marks`` if it shows only other
        characters (punctuation, symbols); ``nothing`` if it is empty or holds only white space, control,
        format, private and unassigned characters, fillers and variation selectors.
    """
    found: Literal["nothing", "marks"] = "nothing"
    for char in text:
        kind = unicodedata.category(char)[0]
        if kind in "CZ" or char in _INVISIBLE:
            continue
        if kind in "LN":
            return "words"
        found = "marks"
    return found
