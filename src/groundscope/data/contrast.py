"""Random documents: what a model is given instead of the passages, to see whether they mattered."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from groundscope.errors import InputError, check_count
from groundscope.example import Example

# A draw by length picks among so many: enough for chance, few enough to be near.
_NEAREST = 5
# Characters below which a context says too little to stand in for another: "n/a", "a b c".
_LEAST_LENGTH = 8


@dataclass(frozen=True)
class ContrastDocument:
    """One random document.

    Attributes:
        passages: Its passages.
        info: How it was drawn: ``source`` (``examples`` or ``pool``), ``seed``, and from ``which`` example.
    """

    passages: tuple[str, ...]
    info: dict[str, Any]


@cache
def neutral_passages() -> tuple[str, ...]:
    """Return the built-in pool: short passages on everyday subjects, written for this package."""
    text = resources.files("groundscope.data").joinpath("neutral_passages.txt").read_text(encoding="utf-8")
    return tuple(part.strip() for part in text.split("\n\n") if part.strip())


def draw_contrast(
    example: Example, others: Sequence[Example] = (), seed: int = 0, *, match_length: bool = False
) -> ContrastDocument:
    """Draw the random document of an example; see :func:`draw_contrasts`.

    Args:
        example: The example to be scored.
        others: Examples whose passages may stand in.
        seed: Seed of the draw.
        match_length: Whether it must be about as long as the example's own context.
    """
    return draw_contrasts(example, others, seed, match_length=match_length)[0]


def draw_contrasts(
    example: Example,
    others: Sequence[Example] = (),
    seed: int = 0,
    count: int = 1,
    match_length: bool = False,
) -> list[ContrastDocument]:
    """Draw distinct random documents for an example.

    The draw depends on the seed, the example and the set of other contexts, not on their order, so a
    run that is repeated or resumed draws the same. The first documents of a longer draw are those of a shorter one
    with the same arguments.

    Args:
        example: The example to be scored.
        others: Examples whose passages may stand in. Those about the same context are left out, and those with
            next to none; where they do not suffice, passages of the built-in pool are taken, up to the length of the
            example's own.
        seed: Seed of the draw.
        count: How many.
        match_length: Whether to draw among the few other contexts nearest in length, in characters, to the
            example's own: a document that is much shorter or longer moves a model for that alone. Documents of the
            built-in pool are as long to within one passage in any case.

    Returns:
        ``count`` documents, no two of them equal.

    Raises:
        InputError: If ``count`` is no whole number of at least 1, or there are not so many documents.
    """
    check_count("draw_contrasts", "count", count)
    # Where several examples share a context, the smallest identifier stands for them: no order decides.
    found: dict[tuple[str, ...], str] = {}
    for other in others:
        if _differs(example, other):
            found[other.passages] = min(other.id or "", found.get(other.passages, other.id or ""))
    candidates = sorted(found.items())
    own = _length(example.passages)
    generator = np.random.default_rng(_seed(example, seed))
    if match_length:
        candidates.sort(key=lambda item: abs(_length(item[0]) - own))
    drawn: list[ContrastDocument] = []
    while candidates and len(drawn) < count:
        within = min(_NEAREST, len(candidates)) if match_length else len(candidates)
        passages, identifier = candidates.pop(int(generator.integers(within)))
        info = {"source": "examples", "which": identifier or None, "seed": seed}
        drawn.append(ContrastDocument(passages, {**info, "match_length": True} if match_length else info))
    excluded = {passage for passages in (example.passages, *(item.passages for item in drawn)) for passage in passages}
    return drawn + _from_pool(excluded, count - len(drawn), own, generator, seed)


def _from_pool(
    excluded: set[str], count: int, wanted: int, generator: np.random.Generator, seed: int
) -> list[ContrastDocument]:
    """Documents of the built-in pool, each of the fewest passages that reach the wanted length, if they can."""
    if count == 0:
        return []
    pool = [passage for passage in neutral_passages() if passage not in excluded]
    if count > len(pool):
        raise InputError(
            f"The built-in pool holds {len(pool)} different random documents for this example. Got a demand for "
            f"{count} more than other examples provide; lower the number of documents or give more examples."
        )
    pool = [pool[index] for index in generator.permutation(len(pool)).tolist()]
    documents: list[ContrastDocument] = []
    starts: set[int] = set()
    start = 0
    while len(documents) < count:
        while start in starts:  # each begins with another passage, so no two are equal
            start = (start + 1) % len(pool)
        starts.add(start)
        taken: list[str] = []
        for passage in pool[start:] + pool[:start]:
            if taken and _length(taken) >= wanted:
                break
            taken.append(passage)
        documents.append(ContrastDocument(tuple(taken), {"source": "pool", "which": None, "seed": seed}))
        start = (start + len(taken)) % len(pool)
    return documents


def _length(passages: Sequence[str]) -> int:
    return sum(map(len, passages))


def _differs(example: Example, other: Example) -> bool:
    if example.source_id is not None and example.source_id == other.source_id:
        return False
    said = _length([passage.strip() for passage in other.passages])
    return said >= _LEAST_LENGTH and not set(example.passages) & set(other.passages)


def _seed(example: Example, seed: int) -> list[int]:
    text = "\0".join((example.question, *example.passages, example.response))
    digest = hashlib.sha256(text.encode()).digest()
    return [seed, *np.frombuffer(digest[:16], dtype=np.uint32).tolist()]
