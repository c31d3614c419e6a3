"""Words: the units to which highlighted spans are snapped."""

from __future__ import annotations

import re
import unicodedata

_ZWJ = "\u200d"
# Scripts without spaces between words: Han, kana, Bopomofo, Thai, Lao, Burmese, Khmer.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u30ff"
    "\u3100-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d"
    "\U00020000-\U0003ffff]"
)
_EXTENDERS = re.compile("[\u200c\u200d\uff9e\uff9f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]")
_REGIONAL = re.compile("[\U0001f1e6-\U0001f1ff]")
_IN_WORDS = "'’ʼ-‐‑"
_IN_NUMBERS = ".,:"
_AFTER_NUMBERS = "%‰"


def is_extender(char: str) -> bool:
    """Whether a character belongs to the one before it: marks, joiners, variation selectors, skin tones."""
    if char < "\u0300":
        return False
    return unicodedata.category(char)[0] == "M" or _EXTENDERS.match(char) is not None


def clusters(text: str) -> list[tuple[int, int]]:
    """Cut a text into what a reader sees as one character each.

    A simplification of Unicode's grapheme clusters (UAX 29): a character with the marks, joiners, variation
    selectors and skin tones that follow it, what a zero-width joiner joins, and pairs of flag letters. White
    space never takes anything to itself.

    Returns:
        Half-open code-point ranges in order that cover the text without gaps.
    """
    found: list[tuple[int, int]] = []
    for position, char in enumerate(text):
        start, end = found[-1] if found else (0, 0)
        if found and not text[start].isspace() and _joins(text, start, end, char):
            found[-1] = (start, position + 1)
        else:
            found.append((position, position + 1))
    return found


def _joins(text: str, start: int, end: int, char: str) -> bool:
    if is_extender(char):
        return True
    if text[end - 1] == _ZWJ:
        return not char.isspace()
    return end - start == 1 and _REGIONAL.match(text[start]) is not None and _REGIONAL.match(char) is not None


def word_spans(text: str) -> list[tuple[int, int]]:
    """Cut a text into words.

    A word is a run of letters, digits and their marks, held together by inner apostrophes and hyphens and,
    between digits, by points, commas and colons ("don't", "well-known", "0.002", "1,000"); a percent sign
    stays with its number. Every other visible character is a unit of its own, and so is a character of a
    script without spaces.

    Returns:
        Half-open code-point ranges in order, disjoint, that hold every character that is not white space and
        cut none of :func:`clusters`.
    """
    parts = clusters(text)
    kinds = [_kind(text[start]) for start, _ in parts]
    spans: list[tuple[int, int]] = []
    open_word = False  # whether the last unit may still grow
    for index, (start, end) in enumerate(parts):
        kind = kinds[index]
        if kind == "space":
            open_word = False
        elif open_word and (kind == "word" or _holds(text, parts, kinds, index)):
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
            open_word = kind == "word"
    return spans


def _kind(char: str) -> str:
    if char.isspace():
        return "space"
    if _UNSPACED.match(char):
        return "unspaced"
    return "word" if char.isalnum() else "symbol"


def _holds(text: str, parts: list[tuple[int, int]], kinds: list[str], index: int) -> bool:
    """Whether the symbol at ``index`` continues the word before it."""
    symbol = text[slice(*parts[index])]
    after_digit = kinds[index - 1] == "word" and text[parts[index - 1][0]].isdigit()
    if symbol in _AFTER_NUMBERS and after_digit:
        return True
    if kinds[index - 1] != "word" or index + 1 == len(parts) or kinds[index + 1] != "word":
        return False
    before_digit = text[parts[index + 1][0]].isdigit()
    return symbol in _IN_WORDS or (symbol in _IN_NUMBERS and after_digit and before_digit)
