"""Signals of the output distribution, with the passages and under a random document."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax, logsumexp, softmax

import reference.signals
from groundscope.lm.anatomy.unembedding import Unembedding
from groundscope.trace.signals import output
from groundscope.trace.signals.output import contrast_signals, output_signals

OUTPUT = frozenset({"token_logprob", "token_entropy", "token_energy"})
CONTRAST = frozenset({"mmd", "token_logprob_contrast"})


class Copied(torch.nn.Module):
    """An output matrix that is the identity: states stand for logits."""

    def forward(self, hidden):
        return hidden.clone()


IDENTITY = Unembedding((), Copied())


def contrasted(p, q, targets, embeddings):
    embeddings = torch.as_tensor(embeddings)
    norms = torch.linalg.vector_norm(embeddings.double(), dim=-1).clamp_(min=1e-8).to(torch.as_tensor(p).dtype)
    got = contrast_signals(
        IDENTITY, torch.as_tensor(p), torch.as_tensor(q), torch.tensor(targets), CONTRAST, embeddings, norms
    )
    return {name: value.double().numpy() for name, value in got.items()}


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1.0, 20.0, 100.0, 1e4]), st.sampled_from([1, 7, 90]))
def test_output_signals_equal_the_definitions(seed, scale, rows):
    rng = np.random.default_rng(seed)
    logits = (scale * rng.normal(size=(rows, 33))).astype(np.float32)
    targets = rng.integers(0, 33, size=rows)
    got = output_signals(IDENTITY, torch.from_numpy(logits.copy()), torch.from_numpy(targets), OUTPUT)
    exact = logits.astype(np.float64)
    # Logits in the ten thousands are themselves known to 1e-3 only.
    atol = 2e-3 if scale > 100 else 5e-5
    np.testing.assert_allclose(got["token_logprob"], log_softmax(exact, -1)[range(rows), targets], rtol=1e-5, atol=atol)
    np.testing.assert_allclose(got["token_energy"], -logsumexp(exact, -1), rtol=1e-5, atol=atol)
    np.testing.assert_allclose(
        got["token_entropy"], reference.signals.entropy(softmax(exact, -1)), rtol=1e-4, atol=atol
    )
    assert (got["token_logprob"] <= 0).all() and (got["token_entropy"] >= 0).all()


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.1, 1.0, 30.0, 100.0, 1e4]))
def test_mmd_is_in_range_and_equals_the_definition(seed, scale):
    rng = np.random.default_rng(seed)
    p, q = (scale * rng.normal(size=(2, 4, 33))).astype(np.float32)
    embeddings = (rng.normal(size=(33, 6)) * rng.uniform(0.01, 9, size=(33, 1))).astype(np.float32)
    got = contrasted(p, q, [0, 1, 2, 3], embeddings)
    unit = reference.signals.unit_rows(embeddings.astype(np.float64))
    for t in range(4):
        left, right = softmax(p[t].astype(np.float64)), softmax(q[t].astype(np.float64))
        assert got["mmd"][t] == pytest.approx(
            reference.signals.mmd(left, right, unit), rel=1e-4, abs=1e-5 if scale <= 100 else 2e-3
        )
    assert (got["mmd"] >= 0).all() and (got["mmd"] <= 2 + 1e-5).all()
    want = log_softmax(q.astype(np.float64), -1)[range(4), range(4)]
    np.testing.assert_allclose(got["token_logprob_contrast"], want, rtol=1e-5, atol=5e-5 if scale <= 100 else 2e-3)


def test_mmd_of_two_certain_words():
    p, q = np.full((2, 3, 3), -1e4)
    embeddings = np.array([[2.0, 0.0], [3.0, 3.0], [-5.0, 0.0]])
    p[range(3), [0, 0, 0]] = 1e4
    q[range(3), [0, 1, 2]] = 1e4
    # Same word; 45 degrees apart; opposite.
    np.testing.assert_allclose(contrasted(p, q, [0, 0, 0], embeddings)["mmd"], [0, 1 - np.sqrt(0.5), 2], atol=1e-9)


def test_half_precision_embeddings_are_projected_in_full_precision(monkeypatch):
    rng = np.random.default_rng(0)
    p, q = rng.normal(size=(2, 5, 40)).astype(np.float32)
    rough = torch.from_numpy(rng.normal(size=(40, 6)).astype(np.float32)).to(torch.bfloat16)
    fine = contrasted(p, q, [0] * 5, rough.float())
    np.testing.assert_allclose(contrasted(p, q, [0] * 5, rough)["mmd"], fine["mmd"], rtol=1e-5)


def test_output_rows_without_an_embedding_are_left_out():
    rng = np.random.default_rng(0)
    p, q = rng.normal(size=(2, 2, 12))
    embeddings = rng.normal(size=(10, 4))
    unit = reference.signals.unit_rows(embeddings)
    shift = softmax(p, -1) - softmax(q, -1)
    want = 0.5 * np.sum((shift[:, :10] @ unit) ** 2, axis=-1)
    np.testing.assert_allclose(contrasted(p, q, [0, 0], embeddings)["mmd"], want, rtol=1e-9)


def test_an_embedding_of_length_zero_does_not_divide_by_zero():
    embeddings = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    got = contrasted(np.array([[9.0, 0, 0]]), np.array([[0.0, 9, 0]]), [0], embeddings)
    assert np.isfinite(got["mmd"]).all()


def test_row_blocks_do_not_change_anything(monkeypatch):
    rng = np.random.default_rng(0)
    p, q = rng.normal(size=(2, 23, 50)).astype(np.float32)
    embeddings = rng.normal(size=(50, 4)).astype(np.float32)
    targets = rng.integers(0, 50, size=23)
    whole = contrasted(p, q, targets.tolist(), embeddings) | output_signals(
        IDENTITY, torch.from_numpy(p.copy()), torch.from_numpy(targets), OUTPUT
    )
    monkeypatch.setattr(output, "_LOGIT_BYTES", 4 * 50 * 3)
    assert len(list(output.row_blocks(23, 50))) == 8
    cut = contrasted(p, q, targets.tolist(), embeddings) | output_signals(
        IDENTITY, torch.from_numpy(p.copy()), torch.from_numpy(targets), OUTPUT
    )
    assert set(cut) == OUTPUT | CONTRAST
    for name, values in whole.items():
        np.testing.assert_allclose(cut[name], values, rtol=1e-5, atol=1e-7, err_msg=name)
