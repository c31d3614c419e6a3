"""Divergences, entropies and the information processing rate, against plain float64 and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax

import reference.signals
from groundscope.lm.anatomy.unembedding import Unembedding
from groundscope.trace.signals.lens import jensen_shannon, lens_signals
from groundscope.trace.signals.output import entropy, log_softmax_

LENS = frozenset(
    {
        "parametric_knowledge_score",
        "lens_entropy",
        "information_processing_rate",
        "information_processing_rate_calibrated",
    }
)


def naive_jsd(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """From logits, in float64, by the log of the mixture: exact also where the mixture underflows."""
    p, q = log_softmax(a.astype(np.float64), -1), log_softmax(b.astype(np.float64), -1)
    m = np.logaddexp(p, q) - math.log(2)
    return ((np.exp(p) * (p - m)).sum(-1) + (np.exp(q) * (q - m)).sum(-1)) / 2


def fast_jsd(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return jensen_shannon(log_softmax_(torch.from_numpy(a.copy())), log_softmax_(torch.from_numpy(b.copy()))).numpy()


@st.composite
def logit_pairs(draw):
    words = draw(st.sampled_from([2, 8, 101, 1000]))
    scales = draw(st.tuples(*[st.sampled_from([0.0, 1e-3, 1.0, 10.0, 100.0])] * 2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    a, noise = rng.normal(size=(2, 3, words)).astype(np.float32)
    b = a + np.float32(scales[1]) * noise if draw(st.booleans()) else np.float32(scales[1]) * noise
    return np.float32(scales[0]) * a, b.astype(np.float32)


@given(logit_pairs())
@settings(max_examples=200)
def test_divergence_is_in_range_symmetric_and_exact(pair):
    a, b = pair
    got = fast_jsd(a, b)
    assert np.isfinite(got).all() and (got >= 0).all() and (got <= math.log(2) + 1e-5).all()
    np.testing.assert_allclose(got, fast_jsd(b, a), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(got, naive_jsd(a, b), rtol=1e-3, atol=1e-5)
    assert (fast_jsd(a, a) == 0).all()


@pytest.mark.parametrize("words", [8, 32_000])
def test_true_divergence_of_random_and_disjoint_logits(words):
    rng = np.random.default_rng(0)
    a, b = (3 * rng.normal(size=(2, 1, words))).astype(np.float32)
    np.testing.assert_allclose(fast_jsd(a, b), naive_jsd(a, b), rtol=1e-4)
    for height in (50.0, 100.0, 1e4):
        one, other = np.zeros((2, 1, words), dtype=np.float32)
        one[0, 0] = other[0, words - 1] = height
        np.testing.assert_allclose(fast_jsd(one, other), math.log(2), rtol=1e-5)


@pytest.mark.parametrize("words", [8, 32_000])
def test_small_divergences_do_not_drown_in_rounding(words):
    rng = np.random.default_rng(1)
    a = rng.normal(size=(2, words)).astype(np.float64)
    b = a + 1e-3 * rng.normal(size=(2, words))
    np.testing.assert_allclose(fast_jsd(a.astype(np.float32), b.astype(np.float32)), naive_jsd(a, b), rtol=2e-2)


def test_divergence_equals_the_reference_on_probabilities():
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(2, 4, 101))
    want = reference.signals.jensen_shannon(np.exp(log_softmax(a, -1)), np.exp(log_softmax(b, -1)))
    np.testing.assert_allclose(fast_jsd(a, b), want, rtol=1e-9)


class Copied(torch.nn.Module):
    """An output matrix that is the identity: states stand for logits."""

    def forward(self, hidden):
        return hidden.clone()


def lens_of(layers: list[np.ndarray], targets: list[int], wanted: frozenset[str] = LENS) -> dict[str, np.ndarray]:
    """Lens signals of a model whose states are its logits; the residual before the block is the layer before."""
    states = [torch.from_numpy(np.asarray(layer)) for layer in layers]
    unembedding = Unembedding((), Copied())
    mids = [states[0], *states[:-1]]
    out = lens_signals(unembedding, mids, states, states[-1], torch.tensor(targets), wanted)
    return {name: value.double().numpy() for name, value in out.items()}


def with_entropy(target: float, words: int, best: int) -> np.ndarray:
    """Logits with one word above the rest, so that the entropy in nats is ``target``."""
    low, high = 0.0, 60.0
    for _ in range(200):
        middle = (low + high) / 2
        logits = np.zeros(words)
        logits[best] = middle
        p = np.exp(log_softmax(logits))
        low, high = (middle, high) if -(p * np.log(p)).sum() > target else (low, middle)
    return logits


def test_rate_of_three_layers_by_hand():
    words = 200
    first, second = with_entropy(0.1, words, 3), with_entropy(1.0, words, 7)
    last = with_entropy(5.0, words, 7)
    p1, p2, p3 = (np.exp(log_softmax(x)) for x in (first, second, last))
    # The last layer's choice is word 7: layer 1 gives it next to nothing, layer 2 more than the last one does.
    above = 1 * (1 - min(p1[7] / p3[7], 1)) + 2 * (1 - min(p2[7] / p3[7], 1))
    want = above / (1 / 0.1 + 2 / 1.0)
    got = lens_of([first[None], second[None], last[None]], [5])
    np.testing.assert_allclose(got["information_processing_rate"], want, rtol=1e-6)
    np.testing.assert_allclose(got["information_processing_rate_calibrated"], want * p3[5] / p3[7], rtol=1e-6)
    np.testing.assert_allclose(got["lens_entropy"], [[0.1, 1.0, 5.0]], rtol=1e-6)


def test_one_certain_layer_takes_the_rate_to_zero_and_never_to_nan():
    certain = np.full((1, 50), -1e4, dtype=np.float32)
    certain[0, 4] = 1e4
    flat = np.zeros((1, 50), dtype=np.float32)
    got = lens_of([certain, flat, flat], [1])
    assert np.isfinite(got["information_processing_rate"]).all()
    assert got["information_processing_rate"] == pytest.approx(0, abs=1e-6)


def test_a_model_of_one_layer_has_no_rate():
    got = lens_of([np.array([[0.0, 1.0, 2.0]])], [2])
    assert got["information_processing_rate"] == 0 and got["information_processing_rate_calibrated"] == 0


@example(3870232, 1e-3, 2)  # two words within a rounding step of each other
@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-3, 1.0, 10.0, 100.0, 1e4]), st.integers(2, 5))
def test_ranges_hold_whatever_the_logits(seed, scale, depth):
    words = 60
    rng = np.random.default_rng(seed)
    layers = [(scale * rng.normal(size=(4, words))).astype(np.float32) for _ in range(depth)]
    got = lens_of(layers, [0, 1, 2, 59])
    for name, values in got.items():
        assert np.isfinite(values).all(), name
        assert values.min() >= 0, name
    # Logits in the ten thousands are themselves known to 1e-3 only.
    slack = 1e-3 if scale > 100 else 1e-5
    assert got["lens_entropy"].max() <= math.log(words) + slack
    assert got["parametric_knowledge_score"].max() <= math.log(2) + slack
    assert got["information_processing_rate"].max() <= math.log(words) + slack
    assert (got["information_processing_rate_calibrated"] <= got["information_processing_rate"] + 1e-7).all()
    want = [
        reference.signals.information_processing_rate(
            [np.exp(log_softmax(layer[t].astype(np.float64))) for layer in layers]
        )
        for t in range(4)
    ]
    if scale <= 10:
        np.testing.assert_allclose(got["information_processing_rate"], want, rtol=2e-3, atol=1e-4)


def test_only_what_is_wanted_is_returned():
    layers = [np.random.default_rng(0).normal(size=(2, 9)) for _ in range(3)]
    everything = lens_of(layers, [0, 1])
    for name in LENS:
        alone = lens_of(layers, [0, 1], frozenset({name}))
        assert set(alone) == {name}
        np.testing.assert_array_equal(alone[name], everything[name])


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1.0, 100.0, 1e5]))
def test_entropy_is_between_zero_and_that_of_the_uniform(seed, scale):
    values = np.random.default_rng(seed).normal(size=(3, 40)).astype(np.float32) * np.float32(scale)
    got = entropy(log_softmax_(torch.from_numpy(values))).numpy()
    assert np.isfinite(got).all() and got.min() >= 0 and got.max() <= math.log(40) + 1e-5
