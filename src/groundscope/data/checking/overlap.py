"""Contexts that are the same, or nearly: what duplicates and leaks between splits are made of."""

from __future__ import annotations

import heapq
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations

from groundscope.example import Example
from groundscope.text.controls import words_of

_SHINGLE = 5  # words
_SKETCH = 64  # hashes kept of a context
_COMMON = 40  # a shingle in more contexts than this is a phrase of the template, not of a context
NEAR = 0.8  # estimated Jaccard similarity of shingle sets from which on two contexts count as nearly the same


@dataclass
class Context:
    """One distinct context (letter case, punctuation and white space aside) and where it occurs.

    Attributes:
        splits: Names of the splits.
        groups: Groups of the examples (see ``Example.group``).
        ids: Ids of some examples, by split.
        sketch: The smallest hashes of its shingles, ascending; empty for very short contexts.
    """

    sketch: tuple[int, ...]
    splits: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    ids: dict[str, str] = field(default_factory=dict)


def normal(texts: Iterable[str]) -> str:
    """Return the words of texts in lower case, joined by single spaces."""
    return " ".join(words_of("\n".join(texts)))


def contexts_of(examples: Iterable[tuple[str, Example]]) -> list[Context]:
    """Return the distinct contexts of (split, example) pairs, in order of appearance; empty ones are left out."""
    found: dict[str, Context] = {}
    as_given: dict[tuple[str, ...], Context | None] = {}  # many examples share one context to the letter
    for split, example in examples:
        if example.passages not in as_given:
            text = normal(example.passages)
            if text and text not in found:
                found[text] = Context(_sketch(text.split(" ")))
            as_given[example.passages] = found.get(text)
        context = as_given[example.passages]
        if context is None:
            continue
        context.splits.add(split)
        context.groups.add(example.group)
        context.ids.setdefault(split, example.id or "")
    return list(found.values())


def near_pairs(contexts: list[Context]) -> Iterator[tuple[Context, Context]]:
    """Yield pairs of different contexts that are nearly the same.

    Similarity is the Jaccard index of their sets of five-word shingles, estimated from the 64 smallest hashes
    of each (bottom-k sketches: Broder 1997), so the cost grows with the number of contexts and not with its
    square.
    """
    holders: dict[int, list[int]] = defaultdict(list)
    for index, context in enumerate(contexts):
        for value in context.sketch:
            holders[value].append(index)
    candidates: set[tuple[int, int]] = set()
    for members in holders.values():
        if 1 < len(members) <= _COMMON:
            candidates.update(combinations(members, 2))
    for first, second in sorted(candidates):
        if similarity(contexts[first].sketch, contexts[second].sketch) >= NEAR:
            yield contexts[first], contexts[second]


def similarity(first: tuple[int, ...], second: tuple[int, ...]) -> float:
    """Return the estimated Jaccard index of two sketches, from 0 to 1."""
    smallest = heapq.nsmallest(_SKETCH, {*first, *second})
    both = {*first} & {*second}
    return sum(value in both for value in smallest) / max(1, len(smallest))


def _sketch(words: list[str]) -> tuple[int, ...]:
    shingles = {" ".join(words[start : start + _SHINGLE]) for start in range(len(words) - _SHINGLE + 1)}
    hashes = {zlib.crc32(shingle.encode()) for shingle in shingles}
    return tuple(heapq.nsmallest(_SKETCH, hashes)) if len(hashes) >= _SHINGLE else ()
