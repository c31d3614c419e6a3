"""Where a quoted stretch stands in a text: the way back from strings to offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from groundscope.errors import InputError, check_choice
from groundscope.example import Label
from groundscope.text.words import is_extender, word_spans

ALL, FIRST = "all", "first"


@dataclass(frozen=True)
class Placed:
    """Stretches that were looked up in a text.

    Attributes:
        labels: Those found, in order, overlaps merged.
        unmatched: Those that do not stand in the text word for word, as they were given.
    """

    labels: tuple[Label, ...]
    unmatched: tuple[str, ...]


def occurrences(text: str, quote: str) -> list[tuple[int, int]]:
    """Return where a quote stands in a text, half-open code-point ranges that do not overlap.

    Where it stands both on its own and inside a longer word ("art" in "start"), only the places of its own
    count. A place that would cut a character (an accent, a part of an emoji) never counts.
    """
    found = []
    start = text.find(quote) if quote else -1
    while start >= 0:
        end = start + len(quote)
        whole = not is_extender(text[start]) and not (end < len(text) and is_extender(text[end]))
        if whole:
            found.append((start, end))
        start = text.find(quote, end if whole else start + 1)
    if len(found) < 2:
        return found
    words = word_spans(text)
    starts, ends = {start for start, _ in words}, {end for _, end in words}
    return [place for place in found if place[0] in starts and place[1] in ends] or found


def place_quotes(text: str, quotes: Iterable[str], which: str = ALL, type: str = "") -> Placed:  # noqa: A002
    """Find quotes in a text, word for word.

    White space around a quote, and quotation marks around it that do not belong to the text, are ignored.

    Args:
        text: The response.
        quotes: The stretches.
        which: ``all`` occurrences of each, or the ``first``.
        type: The type that the labels get.
    """
    check_choice("place_quotes", "which", which, (ALL, FIRST))
    places: list[tuple[int, int]] = []
    unmatched = []
    for quote in quotes:
        found = occurrences(text, quote.strip()) or occurrences(text, quote.strip().strip("\"'“”‘’").strip())
        if not found:
            unmatched.append(quote)
        places += found if which == ALL else found[:1]
    return Placed(tuple(Label(start, end, type) for start, end in _merged(places)), tuple(unmatched))


def check_label_text(index: int, text: str, start: int, end: int, claimed: object) -> None:
    """Refuse a label whose offsets do not enclose the text that it carries.

    Raises:
        InputError: If ``text[start:end]`` is not ``claimed``.
    """
    if isinstance(claimed, str) and text[max(0, start) : max(0, end)] != claimed:
        raise InputError(
            f"labels[{index}] carries the text {_short(claimed)}, but characters {start} to {end} of the response are "
            f"{_short(text[max(0, start) : max(0, end)])}. Offsets must be code points of the response as given."
        )


def _merged(places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(places):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
