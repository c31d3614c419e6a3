"""Random inputs for comparisons with the naive reference."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Case(NamedTuple):
    """The input of `reference.run`, in its order: `run(model, *case)`."""

    prompt_ids: list[int]
    response_ids: list[int]
    passages: list[tuple[int, int]]
    header: tuple[int, int]
    contrast_prompt_ids: list[int] | None


def random_case(
    rng: np.random.Generator,
    vocab: int,
    n_passages: int = 1,
    *,
    passage_length: tuple[int, int] = (5, 14),
    response_length: tuple[int, int] = (3, 9),
    header_length: int = 3,
    contrast: bool = True,
) -> Case:
    """Builds a prompt of beginning, passages with a separator between, question and generation header.

    Args:
        rng: Source of randomness.
        vocab: Size of the vocabulary; ids below 3 are left to special tokens, id 1 opens the prompt.
        n_passages: Number of passages.
        passage_length: Smallest and largest number of tokens of a passage.
        response_length: Smallest and largest number of tokens of the response.
        header_length: Tokens of the generation header; 0 for none, which gives (P, P).
        contrast: Whether to add the same prompt around other passages, of another length.

    Returns:
        The case. The random prompt shares everything before the first passage, as real ones do.
    """

    def draw(low: int, high: int) -> list[int]:
        return [int(i) for i in rng.integers(3, vocab, size=int(rng.integers(low, high + 1)))]

    beginning, separator = [1, *draw(2, 6)], draw(1, 2)
    ending, header = draw(3, 7), draw(header_length, header_length)

    def prompt() -> tuple[list[int], list[tuple[int, int]]]:
        ids, ranges = list(beginning), []
        for _ in range(n_passages):
            passage = draw(*passage_length)
            ranges.append((len(ids), len(ids) + len(passage)))
            ids += passage + separator
        return ids + ending + header, ranges

    ids, passages = prompt()
    other = prompt()[0] if contrast else None
    return Case(ids, draw(*response_length), passages, (len(ids) - header_length, len(ids)), other)
