"""From what people marked to labels of tokens and responses; 1 is hallucinated everywhere."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from groundscope.errors import InputError
from groundscope.example import Example
from groundscope.lm.prompt.layout import Layout

Labels = npt.NDArray[np.bool_]
FINE_KINDS = ("span", "sentence")
ALL_KINDS = ("span", "sentence", "response")


def kind_of(example: Example) -> str:
    """Return how fine the labels of an example are: ``span``, ``sentence`` or ``response``.

    Raises:
        InputError: If nobody labelled it.
    """
    if example.labels is None and example.hallucinated is None:
        raise InputError(
            f"Example {example.id!r} has no labels. Learning and measuring need 'labels' or 'hallucinated'."
        )
    if example.labels is None:
        return "response"
    kind = example.label_kind or "span"
    if kind not in ALL_KINDS:
        raise InputError(f"The label_kind of example {example.id!r} must be one of {ALL_KINDS}. Got {kind!r} instead.")
    return kind


def response_label(example: Example) -> bool:
    """Return whether any part of the response is hallucinated.

    Raises:
        InputError: If nobody labelled it.
    """
    kind_of(example)
    return bool(example.labels) if example.hallucinated is None else example.hallucinated


def token_labels(example: Example, layout: Layout) -> Labels:
    """Return which response tokens overlap a marked stretch, (token,).

    A faithful response labels every token 0, whatever its kind of labels.

    Raises:
        InputError: If a hallucinated response is labelled as a whole only, or the layout has no offsets.
    """
    if kind_of(example) == "response":
        if not response_label(example):
            return np.zeros(layout.response_length, dtype=np.bool_)
        raise InputError(
            f"Example {example.id!r} is labelled as a whole; labels of spans or sentences are needed for its tokens."
        )
    offsets = layout.response_offsets
    if offsets is None:
        raise InputError(f"Example {example.id!r} was laid out without offsets, so its labels find no tokens.")
    starts, ends = np.asarray(offsets)[:, 0], np.asarray(offsets)[:, 1]
    marked = np.zeros(len(starts), dtype=np.bool_)
    for label in example.labels or ():
        marked |= (starts < label.end) & (label.start < ends)
    return marked


def has_token_labels(example: Example) -> bool:
    """Whether :func:`token_labels` knows every token of the example."""
    return kind_of(example) in FINE_KINDS or not response_label(example)


def check_kinds(owner: str, examples: Iterable[Example], allowed: Iterable[str]) -> None:
    """Refuse examples whose labels are coarser than a method can learn from.

    Raises:
        InputError: If one is; the message names it.
    """
    known = tuple(allowed)
    for example in examples:
        kind = kind_of(example)
        if kind not in known and not (kind == "response" and not response_label(example)):
            raise InputError(
                f"{owner} learns from labels of the kind {' or '.join(map(repr, known))}. "
                f"Example {example.id!r} has labels of the kind {kind!r}; use a method or unit that learns from those."
            )


def check_both_classes(owner: str, labels: Labels, unit: str) -> None:
    """Refuse labels of one class only.

    Raises:
        InputError: If all are the same, or there are none.
    """
    positives = int(np.count_nonzero(labels))
    if positives in (0, len(labels)):
        raise InputError(
            f"{owner} needs {unit}s of both classes to learn from. Got {len(labels) - positives} faithful and "
            f"{positives} hallucinated; add examples of the other class."
        )
