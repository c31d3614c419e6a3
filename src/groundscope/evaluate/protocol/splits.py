"""Splits by source: what shares a context never stands on two sides.

Two examples share a source if their groups are the same or their passages are, and so does whatever is linked
through a third: the same passages may occur in two data sets under two identifiers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from groundscope.detectors.base import check_share
from groundscope.detectors.learnable import check_disjoint
from groundscope.errors import InputError, check_count
from groundscope.example import Example
from groundscope.learn.labels import response_label
from groundscope.trace.traced import Traced, examples_of

Indices = npt.NDArray[np.int64]
Examples = Traced | Sequence[Example]
_SPLITS = ("train", "dev", "test")
_ATTEMPTS = 20


@dataclass(frozen=True, eq=False)
class Split:
    """Positions of examples: fitted on ``train``, chosen on ``dev``, measured on ``test``; no source in two of them."""

    train: Indices
    dev: Indices
    test: Indices


def sources(data: Examples) -> list[str]:
    """Return a name per example that is the same for all that share a source."""
    return example_sources(examples_of(data))


def example_sources(data: Sequence[Example]) -> list[str]:
    """Return the same for examples that nobody has read."""
    parent = list(range(len(data)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    first: dict[str, int] = {}
    for index, item in enumerate(data):
        for key in _keys(item.group, item.passages):
            other = root(first.setdefault(key, index))
            mine = root(index)
            parent[max(mine, other)] = min(mine, other)
    return [data[root(index)].group for index in range(len(data))]


def check_separate(one: Examples, other: Examples) -> None:
    """Refuse two sets that share a source, also one that only the passages tell.

    Raises:
        InputError: If they do.
    """
    groups = example_sources([*examples_of(one), *examples_of(other)])
    both = set(groups[: len(one)]) & set(groups[len(one) :])
    if both:
        raise InputError(
            f"Examples to learn from and examples to choose or measure on must not share passages. Got {len(both)} "
            f"sources in both, for instance {min(both)!r}; remove them from one side."
        )


def folds(data: Examples, count: int = 5, dev_share: float = 0.2, seed: int = 0) -> Iterator[Split]:
    """Cut examples into folds by source, stratified by the response label as well as sources allow.

    Every example is in the test part of exactly one fold. A dev part is carved by source out of the rest.

    Args:
        data: Labelled examples, read or not.
        count: Number of folds, at least 2.
        dev_share: Share of the training part that is held back for choices.
        seed: Of the draw.

    Yields:
        One :class:`Split` per fold.

    Raises:
        InputError: If there are fewer sources than folds, or a part to learn from or choose on would hold one
            class only.
    """
    check_count("folds", "count", count)
    labels, groups = _labels(data), np.array(sources(data))
    _check_both(labels, "The data hold")
    if count < 2:
        raise InputError(f"The 'count' parameter of folds must be at least 2. Got {count!r} instead.")
    found = len(set(groups))
    if found < count:
        fewer = f"use fewer folds (--folds {found}), or " if found > 1 else ""
        raise InputError(
            f"Cutting {count} folds by source needs at least {count} sources. Got {found} in {len(labels)} examples; "
            f"{fewer}give examples from more sources."
        )
    for number, (rest, test) in enumerate(_cut(labels, groups, count, seed), start=1):
        _check_both(labels[rest], f"The training part of fold {number} holds")
        train, dev = carve(labels, groups, rest, dev_share, seed)
        _check(data, Split(train, dev, test))
        yield Split(train, dev, test)


def by_record(data: Examples, dev_share: float = 0.2, seed: int = 0) -> Split:
    """Split examples as their records say; without a ``dev`` one is carved by source out of ``train``.

    Raises:
        InputError: If a record names no split, ``train`` or ``test`` is missing or of one class, or a source or
            id stands in two of them.
    """
    examples = examples_of(data)
    named = np.array([example.split or "" for example in examples])
    unknown = [example.id for example, split in zip(examples, named, strict=True) if split not in _SPLITS]
    if unknown:
        raise InputError(
            f"Splitting by record needs 'split' to be one of {', '.join(_SPLITS)} in every record. "
            f"{len(unknown)} have another or none, for instance {unknown[0]!r}; split by folds instead."
        )
    labels, parts = _labels(data), {name: np.flatnonzero(named == name) for name in _SPLITS}
    for name in ("train", "test"):
        if not len(parts[name]):
            there = ", ".join(f"{len(part)} say {split!r}" for split, part in parts.items() if len(part))
            raise InputError(f"No record says {name!r} ({there}). Split by folds, or give such records too.")
        _check_both(labels[parts[name]], f"The split {name!r} holds")
    train, dev = parts["train"], parts["dev"]
    if len(dev):
        _check_both(labels[dev], "The split 'dev' holds")
    else:
        train, dev = carve(labels, np.array(sources(data)), train, dev_share, seed)
    return _check(data, Split(train, dev, parts["test"]))


def by_shares(data: Examples, dev_share: float = 0.2, test_share: float = 0.2, seed: int = 0) -> Split:
    """Split examples once by source; the rest of the two shares is to learn from.

    Raises:
        InputError: If the shares leave nothing to learn from, or a part would hold one class only.
    """
    for name, share in (("dev_share", dev_share), ("test_share", test_share)):
        check_share("by_shares", name, share)
    if not 0 < dev_share + test_share < 1 or not dev_share * test_share:
        raise InputError(
            f"The shares of dev and test must be above 0 and below 1 together. Got {dev_share!r} and {test_share!r}."
        )
    labels, groups = _labels(data), np.array(sources(data))
    rest, test = carve(labels, groups, np.arange(len(labels)), test_share, seed)
    train, dev = carve(labels, groups, rest, dev_share / (1 - test_share), seed)
    return _check(data, Split(train, dev, test))


def carve(
    labels: npt.NDArray[np.bool_], groups: npt.NDArray[np.str_], rows: Indices, share: float, seed: int
) -> tuple[Indices, Indices]:
    """Cut rows by source into a large and a small part, both classes in both.

    Args:
        labels: (example,) whether hallucinated.
        groups: (example,) source.
        rows: Positions to cut.
        share: About how much the small part gets, in (0, 1).
        seed: Of the draw.

    Returns:
        Positions of the large and of the small part, rising.

    Raises:
        InputError: If no such cut was found.
    """
    parts = max(2, round(1 / share)) if share > 0 else 0
    if not 0 < share < 1:
        raise InputError(f"A share to hold back must be in the range (0, 1). Got {share!r} instead.")
    parts = min(parts, len(set(groups[rows])))
    if parts >= 2:
        for attempt in range(_ATTEMPTS):
            for large, small in _cut(labels[rows], groups[rows], parts, seed + attempt):
                if all(0 < labels[rows[part]].sum() < len(part) for part in (large, small)):
                    return rows[large], rows[small]
    hallucinated = len(set(groups[rows[labels[rows]]]))
    raise InputError(
        f"A part to choose on cannot be held back by source with both classes on both sides: {len(rows)} examples "
        f"from {len(set(groups[rows]))} sources, {hallucinated} of these with hallucinated ones. "
        "Give examples from more sources."
    )


def _cut(
    labels: npt.NDArray[np.bool_], groups: npt.NDArray[np.str_], parts: int, seed: int
) -> Iterator[tuple[Indices, Indices]]:
    import warnings

    from sklearn.model_selection import StratifiedGroupKFold

    splitter = StratifiedGroupKFold(parts, shuffle=True, random_state=seed % 2**32)
    others, hallucinated = np.bincount(labels.astype(int), minlength=2).tolist()
    if min(others, hallucinated) < 1 or max(others, hallucinated) < parts:
        raise InputError(
            f"Cutting {parts} parts needs both classes and {parts} examples of one. There are {hallucinated} "
            f"hallucinated ones and {others} others to be cut; give more examples, or ask for fewer folds."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # fewer examples of a class than parts: checked by the callers
        for rest, part in splitter.split(labels, labels, groups):
            yield rest.astype(np.int64), part.astype(np.int64)


def _check(data: Examples, split: Split) -> Split:
    examples = examples_of(data)
    train, dev, test = ([examples[i] for i in part] for part in (split.train, split.dev, split.test))
    for one, other in ((train, dev), (train, test), (dev, test)):
        check_disjoint(one, other)
    return split


def _labels(data: Examples) -> npt.NDArray[np.bool_]:
    if not len(data):
        raise InputError("There are no examples to split.")
    return np.array([response_label(example) for example in examples_of(data)], dtype=np.bool_)


def _check_both(labels: npt.NDArray[np.bool_], subject: str) -> None:
    positives = int(labels.sum())
    if positives in (0, len(labels)):
        raise InputError(
            f"{subject} one class only: {len(labels) - positives} faithful and {positives} hallucinated. "
            "Give examples of both classes from more sources."
        )


def _keys(group: str, passages: Sequence[str]) -> list[str]:
    text = "\0".join(" ".join(passage.split()) for passage in passages)
    keys = [f"group:{group}"]
    if text.strip("\0"):
        keys.append("passages:" + hashlib.sha256(text.encode()).hexdigest())
    return keys
