"""Traces whose features are drawn, so that what a probe ought to find is known."""

from __future__ import annotations

import numpy as np

import groundscope as gs
from groundscope.example import Example, Label
from groundscope.trace.traced import TracedExample

LAYERS, HEADS = 2, 3


def layout_of(tokens: int) -> gs.Layout:
    """One letter and a blank per token: token t is the code points [2t, 2t + 1)."""
    text = " ".join("a" * tokens)
    offsets = np.stack([np.arange(tokens) * 2, np.arange(tokens) * 2 + 1], axis=1)
    return gs.Layout.from_ids([1, 2, 3], [4] * tokens, response=text, response_offsets=offsets)


def traced(values: dict[str, np.ndarray], *spans: tuple[int, int], number: int = 0, **fields) -> TracedExample:
    """An example whose token ranges ``spans`` are hallucinated."""
    tokens = len(next(iter(values.values())))
    layout = layout_of(tokens)
    labels = tuple(Label(2 * start, 2 * end - 1) for start, end in spans)
    fields = {"labels": labels, "label_kind": "span", "id": f"e{number}", "source_id": f"s{number}"} | fields
    arrays = {name: array.astype(np.float32) for name, array in values.items()}
    return TracedExample(Example("q", ("p",), layout.response or "", **fields), gs.Trace(layout, arrays, "drawn"))


def some_data(
    signal: str = "lookback_ratio",
    count: int = 40,
    seed: int = 0,
    effect: float = 0.3,
    shape: tuple[int, ...] = (LAYERS, HEADS),
    lengths: tuple[int, int] = (4, 24),
) -> list[TracedExample]:
    """Half the responses have one hallucinated span, in which the first feature is lower by ``effect``."""
    rng = np.random.default_rng(seed)
    items = []
    for number in range(count):
        tokens = int(rng.integers(*lengths))
        values = rng.uniform(0.4, 0.6, size=(tokens, *shape))
        spans = []
        if number % 2:
            start = int(rng.integers(0, tokens))
            end = int(rng.integers(start + 1, tokens + 1))
            values.reshape(tokens, -1)[start:end, 0] -= effect
            spans = [(start, end)]
        arrays = {signal: values, "passage_percentage": rng.uniform(0.5, 0.52, tokens)}
        items.append(traced(arrays, *spans, number=number + 1000 * seed))
    return items


def features_of(items: list[TracedExample], signal: str = "lookback_ratio") -> list[np.ndarray]:
    return [item.trace[signal].reshape(item.trace.tokens, -1).astype(np.float64) for item in items]


def marks_of(item: TracedExample) -> np.ndarray:
    marked = np.zeros(item.trace.tokens, dtype=bool)
    for label in item.example.labels or ():
        marked[label.start // 2 : (label.end + 1) // 2] = True
    return marked
