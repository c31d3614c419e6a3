"""Sentences with code-point offsets.

A small rule-based splitter: libraries for this either return strings without offsets or fetch data at run
time. Where it is in doubt it does not cut, so that half a sentence never stands alone.
"""

from __future__ import annotations

import re

from groundscope.text.words import is_extender

_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_SPACED_STOPS = ".!?…"  # end a sentence only before white space: 0.002, example.org
_WIDE_STOPS = "。！？｡।॥؟۔։።။។"  # their scripts need no space after them
_CLOSERS = "\"'”’»›)]}）】」』*_"
_OPENERS = "\"'“‘„«‹([{（【「『*_¿¡#>-–—"

# A footnote such as [1] or [2, 3] right after the stop still belongs to the sentence.
_BREAK = re.compile(
    rf"(?P<line>[{_LINE_ENDS}])"
    rf"|(?P<bullet>(?<=\s)(?=[•‣▪◦●]\s))"
    rf"|(?P<stop>[{_SPACED_STOPS}{_WIDE_STOPS}]+)(?:[{re.escape(_CLOSERS)}]|\[[\d,–\- ]{{1,20}}\])*"
)
_NEXT_WORD = re.compile(rf"\s*[{re.escape(_OPENERS)}]*([^\W_]*)")
_LIST_MARK = re.compile(r"\s*[(\[]?(?:\d{1,3}|[A-Za-z]|[ivxIVX]{1,5})")
_DOTTED = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")  # U.S, a.m, Ph.D

_LONGEST_WORD = 24
_LONGEST_MARK = 40  # with its indentation


def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


_NEVER_LAST = _words(
    "adj adm asst brig capt cf cmdr col cpl dr drs e.g eg ens eqn esp fig figs fr gen gov hon hr i.e ie "
    "lt maj messrs mlle mme mr mrs ms msgr mt nr pfc pres prof rep repr rev sen sgt sr sra srta st ste "
    "supt viz vs z.b d.h"
)
_BEFORE_NUMBER = _words("art c ca ch cl eq no nos nr op p para pp pt sec vol approx abt ver v")
_MAYBE_LAST = _words(
    "al approx assn ave bldg blvd bros bzw co corp dept dist ed eds est etc ext inc jr ltd llc plc rd "
    "univ jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thur thurs fri sat sun "
    "hwy sq"
)
_STARTERS = _words(
    "according additionally after all also although an and as at because before both but by despite "
    "during each even finally first for from furthermore he her his how however if in it its many "
    "meanwhile moreover most my not of on or other our overall she since so some such that the their then "
    "there therefore these they this those though thus to under unlike we what when where which while who "
    "why with yes you your"
)


def split_sentences(text: str) -> list[tuple[int, int]]:
    """Cut a text into sentences.

    Line ends and bullets always cut. A list mark ("1.", "b.") stays with what follows it.

    Args:
        text: Any text.

    Returns:
        Half-open code-point ranges in order, disjoint, without white space at either end; together they hold
        every character that is not white space.
    """
    cased = any(char.isupper() for char in text)
    sentences: list[tuple[int, int]] = []
    start = 0
    for match in _BREAK.finditer(text):
        if match["stop"] is None or _ends_sentence(text, start, match, cased):
            _append_stripped(sentences, text, start, match.end())
            start = match.end()
    _append_stripped(sentences, text, start, len(text))
    return sentences


def _append_stripped(sentences: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    piece = text[start:end]
    kept = piece.strip()
    if kept:
        start += len(piece) - len(piece.lstrip())
        sentences.append((start, start + len(kept)))


def _ends_sentence(text: str, start: int, match: re.Match[str], cased: bool) -> bool:
    end = match.end()
    if end == len(text):
        return True
    stop = match["stop"]
    if any(char in _WIDE_STOPS for char in stop):
        return not is_extender(text[end])
    if not text[end].isspace():
        return False
    following = _NEXT_WORD.match(text, end)
    word = following[1] if following else ""
    if cased and word[:1].islower():
        return False
    return stop != "." or not _is_abbreviation(text, start, match.start(), word)


def _is_abbreviation(text: str, start: int, stop: int, following: str) -> bool:
    """Whether the full stop at ``stop`` belongs to the word before it."""
    if stop - start <= _LONGEST_MARK and _LIST_MARK.fullmatch(text, start, stop):
        return True
    before = text[max(start, stop - _LONGEST_WORD) : stop]
    if not before or before[-1].isspace():
        return False
    word = before.split()[-1].lstrip(_OPENERS)
    lowered = word.lower()
    if lowered in _NEVER_LAST:
        return True
    if lowered in _BEFORE_NUMBER and following[:1].isdigit():
        return True
    initial = len(word) == 1 and word.isupper()
    if initial or lowered in _MAYBE_LAST or _DOTTED.fullmatch(word):
        return following.lower() not in _STARTERS
    return False
