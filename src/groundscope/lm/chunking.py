"""Cutting the passages and the response of a layout into chunks, and comparing these by an embedding model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from groundscope.errors import LayoutError
from groundscope.example import Example
from groundscope.lm.companions.embedding import Embedder
from groundscope.lm.language_model import LanguageModel
from groundscope.lm.prompt.chunks import Chunks, Range
from groundscope.lm.prompt.layout import Layout
from groundscope.lm.prompt.offsets import Offsets
from groundscope.text.chunks import ChunkConfig, split_chunks


def attach_chunks(lm: LanguageModel, example: Example, layouts: Sequence[Layout], config: ChunkConfig) -> list[Layout]:
    """Return layouts with their passages and response cut into chunks, and the chunks compared.

    A passage chunk has every token whose last character it holds. A response token belongs to the first chunk that
    holds its last character, so that every token has one chunk. Chunks without a visible character, and those without
    a token, are left out; the tokens of a left-out response chunk go to the one before.

    Args:
        lm: The model that reads; an embedding model runs on its device.
        example: What was laid out.
        layouts: Its layouts, made from text.
        config: How to cut and compare.

    Raises:
        LayoutError: If a layout was made from ids alone.
        PrerequisiteError: If the embedding model cannot be had.
    """
    return [replace(layout, chunks=_chunks_of(lm, example, layout, config)) for layout in layouts]


def _chunks_of(lm: LanguageModel, example: Example, layout: Layout, config: ChunkConfig) -> Chunks:
    if layout.response is None or layout.response_offsets is None or len(layout.passage_texts) != len(layout.passages):
        raise LayoutError(
            f"Chunks are cut from text. Got a layout of example {example.id!r} made from ids alone; "
            "lm.renderer().layout(example) lays out text."
        )
    passages: list[Range] = []
    passage_texts: list[str] = []
    for (first, _), text, offsets in zip(layout.passages, layout.passage_texts, layout.passage_offsets, strict=True):
        for start, end in split_chunks(text, config.size, config.overlap):
            tokens = _tokens_of(offsets, start, end)
            if tokens is not None and not text[start:end].isspace():
                passages.append((first + tokens[0], first + tokens[1]))
                passage_texts.append(text[start:end])
    pieces = [
        piece
        for piece in split_chunks(layout.response, config.size, config.overlap)
        if not layout.response[piece[0] : piece[1]].isspace()
    ]
    response, pieces = _partition(layout.response_offsets, pieces)
    similarity = None
    if config.embedder is not None:
        embedder = Embedder.load(config.embedder, str(lm.device))
        response_texts = [layout.response[start:end] for start, end in pieces]
        vectors = embedder.embed([*response_texts, *passage_texts])
        similarity = vectors[: len(pieces)] @ vectors[len(pieces) :].T
    return Chunks(tuple(passages), response, similarity)


def _tokens_of(offsets: Offsets, start: int, end: int) -> Range | None:
    """Tokens whose last character lies in [start, end): a space before a word belongs to the word's token."""
    last = np.maximum(offsets[:, 1] - 1, offsets[:, 0])
    inside = np.flatnonzero((start <= last) & (last < end))
    return (int(inside[0]), int(inside[-1]) + 1) if len(inside) else None


def _partition(offsets: Offsets, pieces: Sequence[Range]) -> tuple[tuple[Range, ...], list[Range]]:
    """Cut all response tokens at the first new token of each piece; pieces without one are dropped."""
    starts: list[int] = []
    kept: list[Range] = []
    taken = 0
    for start, end in pieces:
        tokens = _tokens_of(offsets, start, end)
        if tokens is None or tokens[1] <= taken:
            continue
        starts.append(max(tokens[0], taken))
        kept.append((start, end))
        taken = tokens[1]
    if not kept:
        # Nothing that can be seen has a token: the response is one chunk.
        return ((0, len(offsets)),), [(0, int(offsets[-1, 1]))]
    borders = [0, *starts[1:], len(offsets)]
    return tuple(pairwise(borders)), kept
