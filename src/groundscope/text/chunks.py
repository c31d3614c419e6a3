"""Chunks: a text cut where it hurts least, into overlapping stretches of limited length, with offsets."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from groundscope.errors import InputError, check_count
from groundscope.text.sentences import split_sentences

Range = tuple[int, int]


@dataclass(frozen=True)
class ChunkConfig:
    """How texts are cut into chunks, and what tells how similar two of them are.

    Attributes:
        size: Most code points in a chunk.
        overlap: Most code points that a chunk repeats of the one before, fewer than ``size``.
        embedder: Name or folder of a sentence-transformers model; ``None`` compares states of the reading model.

    Raises:
        InputError: If a value has the wrong type or range.
    """

    size: int = 256
    overlap: int = 20
    embedder: str | None = None

    def __post_init__(self) -> None:
        _check(self.size, self.overlap)
        if self.embedder is not None and (not isinstance(self.embedder, str) or not self.embedder.strip()):
            raise InputError(
                "The 'embedder' parameter of ChunkConfig must name a sentence-transformers model, or be None. "
                f"Got {self.embedder!r} instead."
            )


def split_chunks(text: str, size: int = 256, overlap: int = 20) -> list[Range]:
    """Cut a text into chunks of at most ``size`` code points.

    It is cut between paragraphs; what is still too long, between lines, then sentences, words, and at last anywhere.
    Neighbouring pieces of one kind are put together while they fit, and a chunk begins with the last pieces of the
    one before as far as ``overlap`` allows. What separates two pieces stays with the first of them.

    Args:
        text: The text.
        size: Most code points in a chunk.
        overlap: Most code points that two neighbours share, fewer than ``size``.

    Returns:
        Half-open ranges in order; together they cover the text, and none lies within another. Empty for no text.

    Raises:
        InputError: If a number is out of range.
    """
    _check(size, overlap)
    return _split(text, 0, len(text), 0, size, overlap)


def _check(size: object, overlap: object) -> None:
    check_count("ChunkConfig", "size", size)
    if isinstance(overlap, bool) or not isinstance(overlap, int) or not 0 <= overlap < int(size):  # type: ignore[call-overload]
        raise InputError(
            f"The 'overlap' parameter of ChunkConfig must be an integer of at least 0 and below size={size}. "
            f"Got {overlap!r} instead."
        )


def _split(text: str, start: int, end: int, level: int, size: int, overlap: int) -> list[Range]:
    chunks: list[Range] = []
    run: list[Range] = []
    for piece in _pieces(text, start, end, level, size, overlap):
        if piece[1] - piece[0] <= size:
            run.append(piece)
            continue
        chunks += _merged(run, size, overlap)
        chunks += _split(text, *piece, level + 1, size, overlap)
        run = []
    return chunks + _merged(run, size, overlap)


def _pieces(text: str, start: int, end: int, level: int, size: int, overlap: int) -> list[Range]:
    """Cut a stretch at all places of one kind; white space stays with what it follows."""
    if level < len(_CUTS):
        inside = text[start:end]
        borders = [start, *(start + cut for cut in _CUTS[level](inside) if 0 < cut < len(inside)), end]
    else:
        # Pieces no longer than the overlap, so that there is one to be repeated.
        borders = [*range(start, end, overlap or size), end]
    return [(a, b) for a, b in pairwise(borders) if a < b]


def _after(pattern: str) -> Callable[[str], list[int]]:
    return lambda text: [match.end() for match in re.finditer(pattern, text)]


_CUTS: tuple[Callable[[str], list[int]], ...] = (
    _after(r"\n[^\S\n]*\n\s*"),
    _after(r"[\n\r\v\f\x85\u2028\u2029]+"),
    lambda text: [start for start, _ in split_sentences(text)],
    _after(r"\s+"),
)


def _merged(run: list[Range], size: int, overlap: int) -> list[Range]:
    """Put adjacent pieces together while they fit."""
    chunks: list[Range] = []
    begin = 0
    for last, (_, end) in enumerate(run):
        if last + 1 < len(run) and run[last + 1][1] - run[begin][0] <= size:
            continue
        chunks.append((run[begin][0], end))
        if last + 1 == len(run):
            break
        # Go back as far as overlap and the next piece allow, but never to where this chunk began.
        following = run[last + 1][1]
        begin = last + 1
        while begin > 0 and run[begin - 1][0] > chunks[-1][0]:
            earlier = run[begin - 1][0]
            if end - earlier > overlap or following - earlier > size:
                break
            begin -= 1
    return chunks
