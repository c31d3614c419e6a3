"""Labelled examples whose signals are drawn, with a head and a layer that follow the label."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import groundscope as gs
from groundscope.example import Example, Label
from groundscope.learn.labels import token_labels
from groundscope.trace.trace import Trace
from groundscope.trace.traced import TracedExample

LAYERS, HEADS = 3, 4
HEAD, LAYER = (1, 2), 2
_TEXT = "the tower was built by bees in 1889 and stands near a river of honey"


def planted(tiny, count: int, seed: int = 0, *, kind: str = "span", chunks: int = 1, strength: float = 2.0):
    """Traced examples; every second one is hallucinated from some word on.

    Args:
        tiny: A language model with a tokenizer; it lays out, it does not read.
        count: How many.
        seed: Seed of words, marks and signals.
        kind: ``span`` labels, or ``response`` labels.
        chunks: Chunks of each response.
        strength: How far head and layer move where a token is hallucinated.
    """
    rng = np.random.default_rng(seed)
    items = []
    for number in range(count):
        words = rng.choice(_TEXT.split(), size=int(rng.integers(6, 12)))
        response = " ".join(words)
        start = len(" ".join(words[: int(rng.integers(1, 5))])) + 1
        marks = (Label(start, len(response)),) if number % 2 else ()
        fine = Example(
            question="What of the tower?",
            passages=(f"Passage {seed} {number}.",), response=response, labels=marks, id=f"{seed}-{number}",
            source_id=f"{seed}-{number}", label_kind="span",
        )  # fmt: skip
        layout = tiny.renderer().layout(fine)
        marked = token_labels(fine, layout)
        items.append(TracedExample(_as_kind(fine, kind), _trace(rng, layout, marked, chunks, strength)))
    return items


def _as_kind(example: Example, kind: str) -> Example:
    if kind == "span":
        return example
    return replace(example, labels=None, label_kind=None, hallucinated=bool(example.labels))


def _trace(rng, layout: gs.Layout, marked, chunks: int, strength: float) -> Trace:
    tokens = layout.response_length
    number = np.minimum(np.arange(tokens) * chunks // tokens, chunks - 1)
    external = rng.normal(size=(tokens, LAYERS, HEADS))
    external[:, HEAD[0], HEAD[1]] -= strength * marked
    by_chunk = rng.normal(size=(chunks, LAYERS, HEADS))
    for index in range(chunks):
        by_chunk[index, HEAD[0], HEAD[1]] -= strength * marked[number == index].any()
    knowledge = rng.normal(size=(tokens, LAYERS))
    knowledge[:, LAYER] += strength * marked
    signals = {
        "external_context_score": external,
        "chunk_context_score": by_chunk[number],
        "response_chunk": number,
        "parametric_knowledge_score": knowledge,
    }
    arrays = {name: values.astype(np.float32) for name, values in signals.items()}
    return Trace(layout, arrays, "planted", tuple(range(LAYERS)), fingerprint={"model": "planted"})


def relabelled(items, seed: int):
    """The same examples with response labels of other examples."""
    labels = [bool(item.example.labels or item.example.hallucinated) for item in items]
    mixed = np.random.default_rng(seed).permutation(labels)
    return [
        TracedExample(replace(item.example, labels=None, label_kind=None, hallucinated=bool(label)), item.trace)
        for item, label in zip(items, mixed, strict=True)
    ]
