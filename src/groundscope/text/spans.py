"""From token scores to spans: smoothing, thresholding, merging and snapping to words."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from groundscope.errors import InputError
from groundscope.text.words import word_spans

Scores = NDArray[np.floating]


def smooth(scores: Scores, window: int) -> NDArray[np.float64]:
    """Replace every score by the mean of a window around it.

    Args:
        scores: Shape (tokens,); NaN where a token has no score. Such a token stays NaN and adds to no mean.
        window: Width in tokens, at least 1 (which changes nothing). The window is centred; an even one
            reaches one token further to the right. At the borders it holds the tokens that exist.

    Returns:
        Float64 array of the same shape.

    Raises:
        InputError: If the window is not a positive integer or the scores are not one-dimensional.
    """
    if isinstance(window, bool) or not isinstance(window, (int, np.integer)) or window < 1:
        raise InputError(f"The 'window' parameter of smooth must be an integer of at least 1. Got {window!r} instead.")
    values = _as_scores(scores)
    if window == 1 or not len(values):
        return values
    scored = ~np.isnan(values)
    width = min(int(window), 2 * len(values))
    shift = width // 2
    kernel = np.ones(width)
    sums = np.convolve(np.where(scored, values, 0.0), kernel)[shift : shift + len(values)]
    counts = np.convolve(scored.astype(np.float64), kernel)[shift : shift + len(values)]
    means = np.full(len(values), np.nan)
    np.divide(sums, counts, out=means, where=scored)
    return means


def find_spans(
    response: str,
    offsets: Sequence[tuple[int, int]],
    scores: Scores,
    threshold: float,
    *,
    min_chars: int = 2,
    max_gap: int = 1,
    words: Sequence[tuple[int, int]] | None = None,
) -> list[tuple[int, int, float]]:
    """Find the stretches of a response whose score reaches the threshold.

    1. A word's score is the mean of the scored tokens that overlap it; words at or above the threshold are
       kept.
    2. Kept words become one span when at most ``max_gap`` other words lie between them (punctuation and white
       space do not count) and every token and unit between them has a score.
    3. Punctuation at either end of a span is cut off, unless the span holds nothing else.
    4. Spans with fewer than ``min_chars`` visible characters are dropped.

    Lowering the threshold never uncovers a word. Because of the gaps in rule 2 a span's mean may lie a little
    below the threshold.

    Args:
        response: The text.
        offsets: Half-open code-point range per token. Tokens may share a range; characters may be in none.
        scores: Shape (tokens,), usually smoothed; NaN where a token has no score.
        threshold: Any real number.
        min_chars: Least number of characters, white space not counted.
        max_gap: Most unflagged words inside a span at a time.
        words: What :func:`~groundscope.text.words.word_spans` returns for the response, where it is known already.

    Returns:
        ``(start, end, score)`` in order, disjoint, on the borders of
        :func:`~groundscope.text.words.word_spans`; ``score`` is the mean of the scored tokens in it.

    Raises:
        InputError: If offsets and scores differ in number, an offset lies outside the response, or the
            threshold is NaN.
    """
    if np.isnan(threshold):
        raise InputError("The 'threshold' parameter of find_spans must be a number. Got NaN instead.")
    ranges, values = _check(offsets, scores, len(response))
    words = word_spans(response) if words is None else words
    word_scores = np.array(list(_means(words, ranges, values)), dtype=np.float64)
    flagged = np.flatnonzero(word_scores >= threshold)  # NaN compares false
    spans = []
    for run in _runs(response, words, word_scores, flagged, ranges, values, max_gap):
        first, last = _trim(response, words, *run)
        start, end = words[first][0], words[last][1]
        if sum(not char.isspace() for char in response[start:end]) >= min_chars:
            spans.append((start, end))
    return [(start, end, score) for (start, end), score in zip(spans, _means(spans, ranges, values), strict=True)]


def aggregate_units(
    units: Sequence[tuple[int, int]], offsets: Sequence[tuple[int, int]], scores: Scores
) -> list[float | None]:
    """Average the token scores over larger units, such as sentences.

    Args:
        units: Half-open code-point ranges.
        offsets: Half-open code-point range per token.
        scores: Shape (tokens,); NaN where a token has no score.

    Returns:
        For each unit the mean of the scored tokens that overlap it; ``None`` where there is none.

    Raises:
        InputError: If offsets and scores differ in number.
    """
    ranges, values = _check(offsets, scores, None)
    return [None if np.isnan(mean) else mean for mean in _means(units, ranges, values)]


def _as_scores(scores: Scores) -> NDArray[np.float64]:
    values: NDArray[np.float64] = np.array(scores, dtype=np.float64)
    if values.ndim != 1:
        raise InputError(f"Token scores must be one-dimensional. Got the shape {values.shape} instead.")
    return values


def _check(
    offsets: Sequence[tuple[int, int]], scores: Scores, length: int | None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    values = _as_scores(scores)
    ranges = np.asarray(offsets, dtype=np.int64).reshape(-1, 2)
    if len(ranges) != len(values):
        raise InputError(f"There must be one offset range per token score. Got {len(ranges)} and {len(values)}.")
    wrong = (ranges[:, 0] < 0) | (ranges[:, 1] < ranges[:, 0])
    if length is not None:
        wrong |= ranges[:, 1] > length
    if wrong.any():
        index = int(np.flatnonzero(wrong)[0])
        limit = "" if length is None else f" ({length})"
        raise InputError(
            f"Token offsets must satisfy 0 <= start <= end <= the response's length in code points{limit}. "
            f"Token {index} has {tuple(ranges[index].tolist())} instead."
        )
    return ranges, values


def _overlapping(ranges: NDArray[np.int64], start: int, end: int) -> NDArray[np.bool_]:
    overlap: NDArray[np.bool_] = np.maximum(ranges[:, 0], start) < np.minimum(ranges[:, 1], end)
    return overlap


def _means(units: Sequence[tuple[int, int]], ranges: NDArray[np.int64], values: NDArray[np.float64]) -> Iterator[float]:
    """Yield the mean score of each unit, NaN where it has none."""
    kept = ~np.isnan(values) & (ranges[:, 0] < ranges[:, 1])  # an empty range overlaps nothing
    starts, ends, values = ranges[kept, 0], ranges[kept, 1], values[kept]
    if not ((np.diff(starts) >= 0).all() and (np.diff(ends) >= 0).all()):
        for start, end in units:
            inside = values[np.maximum(starts, start) < np.minimum(ends, end)]
            yield float(inside.mean()) if len(inside) else float("nan")
        return
    # In order, as nearly always: what overlaps a unit is a run of tokens, found by bisection.
    borders = np.asarray(units, dtype=np.int64).reshape(-1, 2)
    firsts = np.searchsorted(ends, borders[:, 0], side="right").tolist()
    lasts = np.searchsorted(starts, borders[:, 1], side="left").tolist()
    for (start, end), first, last in zip(units, firsts, lasts, strict=True):
        if start >= end or first >= last:
            yield float("nan")
        elif last - first == 1:
            yield float(values[first])
        else:
            yield float(np.add.reduce(values[first:last])) / (last - first)


def _runs(
    response: str,
    words: Sequence[tuple[int, int]],
    word_scores: NDArray[np.float64],
    flagged: NDArray[np.intp],
    ranges: NDArray[np.int64],
    values: NDArray[np.float64],
    max_gap: int,
) -> Iterator[tuple[int, int]]:
    """Yield (first word, last word) of each merged run of flagged words."""
    unscored = ranges[np.isnan(values)]
    first = last = -1
    for index in flagged.tolist():
        if first >= 0:
            between = range(last + 1, index)
            joined = (
                sum(not _is_punctuation(response, words[k]) for k in between) <= max_gap
                and not np.isnan(word_scores[last + 1 : index]).any()
                and not _overlapping(unscored, words[last][1], words[index][0]).any()
            )
            if not joined:
                yield first, last
                first = index
        else:
            first = index
        last = index
    if first >= 0:
        yield first, last


def _trim(response: str, words: Sequence[tuple[int, int]], first: int, last: int) -> tuple[int, int]:
    kept = [index for index in range(first, last + 1) if not _is_punctuation(response, words[index])]
    return (kept[0], kept[-1]) if kept else (first, last)


def _is_punctuation(response: str, word: tuple[int, int]) -> bool:
    return unicodedata.category(response[word[0]])[0] == "P"
