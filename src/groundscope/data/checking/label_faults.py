"""What can be wrong with the labels of one example that can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from groundscope.example import Example
from groundscope.text.words import clusters, word_spans

KINDS = ("span", "sentence", "response")

# name: (whether it makes the data wrong, what it means)
FAULTS = {
    "flag contradicts labels": (True, "'hallucinated' says one thing and 'labels' another"),
    "label cuts a character": (True, "a label begins or ends between a letter and its accent, or inside an emoji"),
    "label holds nothing": (True, "a label encloses nothing but white space"),
    "unknown label kind": (True, f"'label_kind' is none of {', '.join(KINDS)}"),
    "label cuts a word": (False, "a label begins or ends inside a word"),
    "labels overlap": (False, "a stretch is labelled more than once"),
    "response label has spans": (False, "labels of the kind 'response' do not span the response; they locate nothing"),
    "span was not found": (False, "a problematic span is noted that does not stand in the response"),
    "not labelled": (False, "the example has neither 'labels' nor 'hallucinated'"),
}


def label_of(example: Example) -> bool | None:
    """Return whether an example is hallucinated, ``None`` if nobody labelled it."""
    if example.hallucinated is not None:
        return example.hallucinated
    return None if example.labels is None else bool(example.labels)


def kind_name(example: Example) -> str:
    """Return how fine the labels of an example are, ``none`` if there are none."""
    if label_of(example) is None:
        return "none"
    return "response" if example.labels is None else example.label_kind or "span"


def label_faults(example: Example) -> Iterator[str]:
    """Yield the names (of :data:`FAULTS`) of what is wrong with an example, each once."""
    labels, response = example.labels, example.response
    if example.extra.get("unmatched_spans"):
        yield "span was not found"
    if label_of(example) is None:
        yield "not labelled"
    if example.label_kind is not None and example.label_kind not in KINDS:
        yield "unknown label kind"
    if labels is not None and example.hallucinated is not None and bool(labels) != example.hallucinated:
        yield "flag contradicts labels"
    if not labels:
        return
    if example.label_kind == "response":
        if any((label.start, label.end) != (0, len(response)) for label in labels):
            yield "response label has spans"
        return
    if any(not response[label.start : label.end].strip() for label in labels):
        yield "label holds nothing"
    edges = {edge for label in labels for edge in (label.start, label.end)}
    if any(_cuts(response, edge, clusters) for edge in edges):
        yield "label cuts a character"
    elif any(_cuts(response, edge, word_spans) for edge in edges):
        yield "label cuts a word"
    ordered = sorted(labels, key=lambda label: label.start)
    if any(after.start < before.end for before, after in pairwise(ordered)):
        yield "labels overlap"


def _cuts(text: str, edge: int, units: Callable[[str], list[tuple[int, int]]]) -> bool:
    """Whether an edge lies inside a unit; only what stands between white space is cut up, as no unit holds any."""
    start = end = edge
    while start > 0 and not text[start - 1].isspace():
        start -= 1
    while end < len(text) and not text[end].isspace():
        end += 1
    if edge in (start, end):
        return False
    return any(first < edge - start < last for first, last in units(text[start:end]))
