"""What an evaluation measures on which examples; decided on the examples alone, so that it can come before reading."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from groundscope.detectors.base import Detector
from groundscope.detectors.learnable import check_disjoint, check_distinct
from groundscope.errors import InputError, check_choice
from groundscope.evaluate.protocol.scoring import candidates
from groundscope.evaluate.protocol.splits import (
    Split,
    by_record,
    by_shares,
    carve,
    check_separate,
    example_sources,
    folds,
)
from groundscope.example import Example
from groundscope.learn.labels import check_both_classes, check_kinds, response_label

SPLITS = ("folds", "records", "shares")


def plan_splits(
    data: Sequence[Example],
    test: Sequence[Example] | None = None,
    *,
    split: str = "folds",
    count: int = 5,
    dev_share: float = 0.2,
    test_share: float = 0.2,
    seed: int = 0,
) -> list[Split]:
    """Cut labelled examples into what is learnt from, chosen on and measured on.

    Args:
        data: What :func:`groundscope.evaluate.protocol.protocol.evaluate` is to get, or will get once it is read.
        test: Other examples to measure on; their positions follow those of ``data``.
        split: See ``evaluate``; likewise the rest.
        count: Number of folds.
        dev_share: Share held back for choices.
        test_share: Share measured on, for ``shares``.
        seed: Of the draw.

    Raises:
        InputError: If the data cannot be split as asked, hold one class only, or hold an example twice.
    """
    check_choice("evaluate", "split", split, SPLITS)
    for part in (data, test or ()):
        check_distinct(part)
    if test is not None:
        return [_to_test(data, test, dev_share, seed)]
    if split == "folds":
        return list(folds(data, count, dev_share, seed))
    if split == "records":
        return [by_record(data, dev_share, seed)]
    return [by_shares(data, dev_share, test_share, seed)]


def check_learnable(
    detectors: Collection[Detector] | dict[str, Detector], data: Sequence[Example], splits: Sequence[Split]
) -> None:
    """Refuse labels that are too coarse for every detector that was asked for.

    Where some detector can do with them, the others get a row that says why they cannot.

    Args:
        detectors: What is to be measured.
        data: All examples that ``splits`` counts, those to measure on included.
        splits: As :func:`plan_splits` returns them.

    Raises:
        InputError: If none of the detectors can learn from the labels.
    """
    places = np.unique(np.concatenate([part for one in splits for part in (one.train, one.dev)]))
    learnt_from = [data[place] for place in places]
    reasons = []
    for candidate in candidates(detectors):
        if candidate.fitting != "cross-fitted":
            return
        try:
            check_kinds(candidate.detector.name, learnt_from, candidate.detector.label_kinds)  # type: ignore[attr-defined]
        except InputError as exc:
            reasons.append(exc)
        else:
            return
    raise reasons[0]


def _to_test(data: Sequence[Example], test: Sequence[Example], dev_share: float, seed: int) -> Split:
    """Split data for learning and choosing, measured on other examples; sources shared through passages are refused."""
    check_disjoint(data, test)
    check_both_classes("Measuring", np.array([response_label(example) for example in test], dtype=np.bool_), "answer")
    check_separate(data, test)
    everything = [*data, *test]
    labels = np.array([response_label(example) for example in everything], dtype=np.bool_)
    train, dev = carve(labels, np.array(example_sources(everything)), np.arange(len(data)), dev_share, seed)
    return Split(train, dev, np.arange(len(data), len(everything)))
