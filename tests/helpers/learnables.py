"""Layouts with one token per word, and examples labelled by characters."""

from __future__ import annotations

import numpy as np

import groundscope as gs
from groundscope.example import Example, Label


def layout_of(words: list[str]) -> gs.Layout:
    """Lay out words joined by blanks; a token is a word, the blank before it left out."""
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    offsets = np.stack([ends - [len(word) for word in words], ends], axis=1)
    return gs.Layout.from_ids([1, 2], range(3, 3 + len(words)), response=" ".join(words), response_offsets=offsets)


def example_of(words: list[str], *labels: tuple[int, int], **fields) -> Example:
    fields = {"id": "e", "label_kind": "span"} | fields
    return Example("q", ("p",), " ".join(words), labels=tuple(Label(*label) for label in labels), **fields)


def on_words(words: list[str], *spans: tuple[int, int]) -> list[tuple[int, int]]:
    """Character ranges of half-open word ranges."""
    starts = np.concatenate([[0], np.cumsum([len(word) + 1 for word in words])])
    return [(int(starts[a]), int(starts[b]) - 1) for a, b in spans]
