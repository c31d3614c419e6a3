"""Contexts made worse on purpose: sentences taken out of the passages, or put into a random document."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence

import numpy as np

from groundscope.detectors.base import check_share
from groundscope.example import Example
from groundscope.text.sentences import split_sentences

Passages = tuple[str, ...]


def drop_sentences(example: Example, share: float, seed: int = 0) -> Passages:
    """Return the passages of an example without a share of their sentences, drawn at random.

    A larger share drops all that a smaller one drops. At least one sentence stays; passages without any are left out.
    What stands between sentences stays with the one before.

    Args:
        example: Whose passages.
        share: In [0, 1]; rounded to whole sentences.
        seed: Of the draw.
    """
    check_share("drop_sentences", "share", share)
    pieces = _pieces(example.passages)
    order = _generator(example, seed, "drop").permutation(len(pieces))
    dropped = set(order[: min(_count(share, len(pieces)), len(pieces) - 1)].tolist()) if pieces else set()
    kept: list[list[str]] = [[] for _ in example.passages]
    for number, (passage, text) in enumerate(pieces):
        if number not in dropped:
            kept[passage].append(text)
    joined = ("".join(parts) for parts in kept)
    return tuple(text for text in joined if text.strip()) if dropped else example.passages


def inject_sentences(example: Example, document: Sequence[str], share: float, seed: int = 0) -> Passages:
    """Return a random document with a share of the example's own sentences put in at random places.

    A larger share puts in all that a smaller one does.

    Args:
        example: Whose sentences are put in.
        document: Passages of the random document.
        share: Of the example's sentences, in [0, 1]; rounded to whole sentences.
        seed: Of the draw.
    """
    check_share("inject_sentences", "share", share)
    own = [text.strip() for _, text in _pieces(example.passages)]
    generator = _generator(example, seed, "inject")
    order, places = generator.permutation(len(own)), generator.random(len(own))
    chosen = order[: _count(share, len(own))].tolist()
    if not chosen:
        return tuple(document)
    host = _pieces(document) or [(0, "")]
    after: dict[int, list[str]] = {}
    for number in chosen:
        after.setdefault(int(places[number] * len(host)), []).append(own[number])
    texts: list[str] = ["" for _ in document] or [""]
    for number, (passage, text) in enumerate(host):
        texts[passage] += text
        for sentence in after.get(number, []):
            before = texts[passage]
            texts[passage] = f"{before}{'' if not before or before[-1].isspace() else ' '}{sentence} "
    return tuple(text.strip() for text in texts if text.strip())


def _pieces(passages: Sequence[str]) -> list[tuple[int, str]]:
    """Sentences with the number of their passage; joined, those of a passage are the passage."""
    found = []
    for number, passage in enumerate(passages):
        starts = [start for start, _ in split_sentences(passage)]
        edges = [0, *starts[1:], len(passage)] if starts else []
        found += [(number, passage[a:b]) for a, b in itertools.pairwise(edges)]
    return found


def _count(share: float, total: int) -> int:
    return int(np.floor(share * total + 0.5))


def _generator(example: Example, seed: int, purpose: str) -> np.random.Generator:
    text = "\0".join((purpose, example.question, *example.passages))
    digest = hashlib.sha256(text.encode()).digest()
    return np.random.default_rng([seed, *np.frombuffer(digest[:16], dtype=np.uint32).tolist()])
