"""Spans against marked stretches, character by character."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from groundscope.errors import InputError
from groundscope.evaluate.metrics.binary import Counts

Range = tuple[int, int]


def character_counts(length: int, found: Iterable[Range], marked: Iterable[Range]) -> Counts:
    """Count the code points of a response in both, only found, only marked; overlapping ranges count once.

    Args:
        length: Code points of the response.
        found: Half-open ranges that a detector reports.
        marked: Half-open ranges that people marked.

    Raises:
        InputError: If a range lies outside the response.
    """
    one, other = _mask(length, found), _mask(length, marked)
    hit = int(np.count_nonzero(one & other))
    return Counts(hit, int(one.sum()) - hit, int(other.sum()) - hit)


def total(counts: Sequence[Counts]) -> Counts:
    """Add up the counts of several responses; precision, recall and F1 of the sum are micro averages."""
    return Counts(
        sum(item.hit for item in counts),
        sum(item.false_alarm for item in counts),
        sum(item.missed for item in counts),
    )


def _mask(length: int, ranges: Iterable[Range]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    mask = np.zeros(length, dtype=np.bool_)
    for start, end in ranges:
        if not 0 <= start <= end <= length:
            raise InputError(f"A range must satisfy 0 <= start <= end <= {length}. Got ({start}, {end}) instead.")
        mask[start:end] = True
    return mask
