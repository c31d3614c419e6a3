"""How tokens are chosen: the warpers of transformers are really applied, draws follow the distribution."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import TopPLogitsWarper

from groundscope.errors import InputError, NonFiniteError
from groundscope.mitigate.writing import sampler as module
from groundscope.mitigate.writing.sampler import Sampler, nucleus


@pytest.mark.parametrize("head", [4, 1024])
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.05, 0.999), st.floats(0.1, 6))
def test_nucleus_is_that_of_transformers(head, seed, top_p, spread):
    scores = spread * torch.randn(3, 60, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    before = module._HEAD
    module._HEAD = head
    try:
        got = nucleus(scores, top_p)
    finally:
        module._HEAD = before
    assert torch.equal(got, TopPLogitsWarper(top_p)(None, scores.clone()))


@pytest.mark.parametrize(
    ("sampler", "allowed"),
    [
        (Sampler(temperature=1.0), {0, 1, 2, 3}),
        (Sampler(temperature=1.0, top_k=2), {0, 1}),
        (Sampler(temperature=1.0, top_p=0.8), {0, 1}),
        (Sampler(temperature=0.05), {0}),
        (Sampler(temperature=1.0, top_k=3, top_p=0.3), {0}),
    ],
)
def test_draws_follow_the_warped_distribution(sampler, allowed):
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    draws = sampler.draws(1)
    count = 4000
    found = np.bincount([int(draws.choose(probabilities.log()[None])) for _ in range(count)], minlength=4) / count
    assert set(np.flatnonzero(found)) == allowed
    tempered = probabilities ** (1 / sampler.temperature)
    want = torch.where(torch.tensor([i in allowed for i in range(4)]), tempered, torch.zeros(4))
    np.testing.assert_allclose(found, want / want.sum(), atol=4 * math.sqrt(0.25 / count))


def test_greedy_takes_the_first_of_equals():
    logits = torch.tensor([[0.0, 2.0, 2.0], [3.0, 3.0, 1.0]])
    assert Sampler().draws(2).choose(logits).tolist() == [1, 0]


def test_numbers_of_numpy_become_plain_ones():
    made = Sampler(np.float32(0.5), np.float64(0.9), np.int64(3), np.int32(7))
    assert json.loads(json.dumps(vars(made))) == {"temperature": 0.5, "top_p": 0.9, "top_k": 3, "seed": 7}


def test_each_sequence_draws_for_itself():
    logits = torch.zeros(3, 50)
    sampler = Sampler(temperature=1.0, seed=3)
    three, two = sampler.draws(3), sampler.draws(2)
    together = [three.choose(logits) for _ in range(5)]
    assert all(torch.equal(a[:2], two.choose(logits[:2])) for a in together)
    other = sampler.draws(3, stage=1)
    assert [other.choose(logits).tolist() for _ in range(5)] != [row.tolist() for row in together]
    kept, same = sampler.draws(3), sampler.draws(3)
    kept.keep([2])
    assert kept.choose(logits[:1]).tolist() == same.choose(logits)[2:].tolist()


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -1.0},
        {"temperature": math.nan},
        {"temperature": 1e-300},
        {"temperature": 10**400},
        {"temperature": "hot"},
        {"temperature": 1.0, "top_p": 0.0},
        {"temperature": 1.0, "top_p": 1.5},
        {"temperature": 1.0, "top_k": -1},
        {"temperature": 1.0, "top_k": 2.5},
        {"seed": True},
        {"top_p": 0.9},
        {"top_k": 5},
    ],
)
def test_unusable_numbers_are_refused(options):
    with pytest.raises(InputError, match="Sampler"):
        Sampler(**options)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("sampler", [Sampler(), Sampler(temperature=1.0)])
def test_broken_logits_are_refused(value, sampler):
    logits = torch.zeros(1, 5)
    logits[0, 2] = value
    with pytest.raises(NonFiniteError):
        sampler.draws(1).choose(logits)
