"""Random documents: what a model is given instead of the passages, to see whether they mattered."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from groundscope.example import Example


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


def draw_contrast(example: Example, others: Sequence[Example] = (), seed: int = 0) -> ContrastDocument:
    """Draw the random document of an example.

    The draw depends on the seed, the example and the set of other contexts, not on their order, so a
    run that is repeated or resumed draws the same.

    Args:
        example: The example to be scored.
        others: Examples whose passages may stand in. Those about the same context are left out; if none
            is left, passages of the built-in pool are taken, up to the length of the example's own.
        seed: Seed of the draw.
    """
    # Where several examples share a context, the smallest identifier stands for them: no order decides.
    found: dict[tuple[str, ...], str] = {}
    for other in others:
        if _differs(example, other):
            found[other.passages] = min(other.id or "", found.get(other.passages, other.id or ""))
    candidates = sorted(found.items())
    generator = np.random.default_rng(_seed(example, seed))
    if candidates:
        passages, identifier = candidates[int(generator.integers(len(candidates)))]
        return ContrastDocument(passages, {"source": "examples", "which": identifier or None, "seed": seed})
    pool = [passage for passage in neutral_passages() if passage not in example.passages]
    wanted = sum(len(passage) for passage in example.passages)
    taken: list[str] = []
    for index in generator.permutation(len(pool)).tolist():
        if taken and sum(map(len, taken)) >= wanted:
            break
        taken.append(pool[index])
    return ContrastDocument(tuple(taken), {"source": "pool", "which": None, "seed": seed})


def _differs(example: Example, other: Example) -> bool:
    if example.source_id is not None and example.source_id == other.source_id:
        return False
    return any(passage.strip() for passage in other.passages) and not set(example.passages) & set(other.passages)


def _seed(example: Example, seed: int) -> list[int]:
    text = "\0".join((example.question, *example.passages, example.response))
    digest = hashlib.sha256(text.encode()).digest()
    return [seed, *np.frombuffer(digest[:16], dtype=np.uint32).tolist()]
