"""The context score of chunks equals the naive reference, batched, padded on either side and in blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import groundscope as gs
import reference
from groundscope.lm.prompt.chunks import Chunks
from groundscope.trace.signals.chunks import chunks_of, most_attended, pooled_attention
from reference import families
from reference.model_pass import OnlyFloat64


def layout_of(case: reference.Case) -> gs.Layout:
    return gs.Layout.from_ids(case.prompt_ids, case.response_ids, passages=case.passages, header=case.header)


SIGNALS = ["chunk_context_score", "response_chunk"]


def cut(rng, start: int, end: int, most: int, overlap: int) -> list[tuple[int, int]]:
    """Ranges that cover [start, end), neighbours overlapping by up to ``overlap``."""
    ranges, at = [], start
    while at < end:
        stop = min(end, at + int(rng.integers(1, most + 1)))
        ranges.append((max(start, at - int(rng.integers(0, overlap + 1))), stop))
        at = stop
    return ranges


def some_chunked(count: int, seed: int, similarity: bool):
    rng = np.random.default_rng(seed)
    cases = [
        reference.random_case(rng, reference.VOCAB, 1 + i % 3, response_length=(4, 12), contrast=False)
        for i in range(count)
    ]
    pieces = []
    for case in cases:
        passages = [chunk for start, end in case.passages for chunk in cut(rng, start, end, 6, 2)]
        response = cut(rng, 0, len(case.response_ids), 5, 0)
        given = rng.uniform(-1, 1, size=(len(response), len(passages))).astype(np.float32) if similarity else None
        pieces.append((passages, response, given))
    layouts = [
        replace(layout_of(case), chunks=Chunks(tuple(p), tuple(r), s))
        for case, (p, r, s) in zip(cases, pieces, strict=True)
    ]
    return cases, pieces, layouts


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "gpt_oss", "mistral", "lfm2"])
@pytest.mark.parametrize("similarity", [True, False])
def test_it_equals_the_reference(name, similarity, monkeypatch):
    from groundscope.trace.signals import attention

    monkeypatch.setattr(attention, "_CPU_BLOCK", 1)  # blocks of eight rows
    cases, pieces, layouts = some_chunked(3, 5, similarity)
    model = families.build(name)
    want = [reference.run(model, *case, family=name, chunks=piece) for case, piece in zip(cases, pieces, strict=True)]
    lm = gs.LanguageModel(model.double())
    with OnlyFloat64():
        for options in ({}, {"padding_side": "left"}, {"batch_size": 1}):
            for trace, expected in zip(lm.trace(layouts, SIGNALS, **options), want, strict=True):
                decided = expected["chunk_context_score_gap"] > 1e-10
                got = trace["chunk_context_score"]
                assert got.shape == expected["chunk_context_score"].shape and decided.mean() > 0.5
                np.testing.assert_allclose(got[decided], expected["chunk_context_score"][decided], rtol=1e-5, atol=1e-6)
                np.testing.assert_array_equal(trace["response_chunk"], expected["response_chunk"])


def test_the_chunk_that_is_attended_to_most_on_average_wins():
    weights = torch.tensor([[[0.1, 0.5, 0.1, 0.1, 0.2], [0.1, 0.1, 0.3, 0.3, 0.2]]], dtype=torch.float64)
    chunks = Chunks(((1, 2), (2, 4), (0, 4)), ((0, 1), (1, 2)))
    pooled = pooled_attention(weights, chunks)
    np.testing.assert_allclose(pooled[0], [[0.5, 0.1, 0.2], [0.1, 0.3, 0.2]], atol=1e-12)
    assert most_attended(pooled, chunks).tolist() == [[0, 1]]
    # Over both tokens the first chunk leads 0.3 to 0.2; a sum over keys would prefer the long one.
    assert most_attended(pooled, Chunks(chunks.passages, ((0, 2),))).tolist() == [[0]]
    tied = torch.tensor([[[0.2, 0.2]]])
    assert most_attended(tied, Chunks(((0, 1), (1, 2)), ((0, 1),))).tolist() == [[0]]


def test_without_chunks_passages_and_response_are_the_chunks():
    layout = gs.Layout.from_ids(range(1, 12), [20, 21], passages=[(2, 2), (3, 6), (7, 9)], header=(9, 11))
    chunks = chunks_of(layout)
    assert chunks.passages == ((3, 6), (7, 9)) and chunks.response == ((0, 2),)
    lm = gs.LanguageModel(families.build("llama"))
    explicit = replace(layout, chunks=Chunks(((3, 6), (7, 9)), ((0, 2),)))
    one, other = lm.trace([layout, explicit], SIGNALS)
    np.testing.assert_array_equal(one["chunk_context_score"], other["chunk_context_score"])


def test_without_passages_the_score_is_zero():
    lm = gs.LanguageModel(families.build("llama"))
    layout = gs.Layout.from_ids(range(1, 9), [20, 21, 22])
    explicit = replace(layout, chunks=Chunks((), ((0, 1), (1, 3))))
    for trace in lm.trace([layout, explicit], SIGNALS):
        assert trace["chunk_context_score"].shape == (3, 3, 4) and not trace["chunk_context_score"].any()
    assert trace["response_chunk"].tolist() == [0, 1, 1]


def test_numbers_of_chunks_need_no_model(monkeypatch):
    lm = gs.LanguageModel(families.build("llama"))
    monkeypatch.setattr(lm.model, "forward", None)
    layout = replace(gs.Layout.from_ids([1, 2], [3, 4, 5]), chunks=Chunks((), ((0, 2), (2, 3))))
    assert lm.trace(layout, ["response_chunk"])["response_chunk"].tolist() == [0, 0, 1]
