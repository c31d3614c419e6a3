"""The distribution shift under other kernels and truncations, against sums over every pair of words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

import groundscope as gs
import reference
from groundscope.errors import InputError, UnknownNameError
from groundscope.trace.signals import SIGNALS, check_signals, mmd, spec_of
from groundscope.trace.signals.forms import MmdForm, mmd_form
from reference import families

WORDS = 24


def draw(seed: int, rows: int = 3, scale: float = 2.0):
    rng = np.random.default_rng(seed)
    p, q = softmax(scale * rng.normal(size=(2, rows, WORDS)), axis=-1)
    return p, q, rng.normal(size=(WORDS, 5)) * rng.uniform(0.1, 3, size=(WORDS, 1))


def fast(p, q, embeddings, form, dtype=torch.float64):
    e = torch.from_numpy(embeddings).to(dtype)
    norms = torch.linalg.vector_norm(e, dim=-1).clamp_(min=1e-8)
    return mmd.truncated(torch.from_numpy(p).to(dtype), torch.from_numpy(q).to(dtype), e, norms, form).numpy()


def naive(p, q, embeddings, form):
    if form.kernel == "cosine":
        kernel = reference.signals.cosine_kernel(embeddings)
    else:
        kernel = reference.signals.rbf_kernel(embeddings, form.sigma)
    pairs = [[reference.signals.likeliest(row, form.top_k) for row in pair] for pair in zip(p, q, strict=True)]
    return np.array([reference.signals.kernel_mmd(a, b, kernel) for a, b in pairs])


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, WORDS), st.sampled_from([0.1, 2.0, 30.0]))
def test_truncated_cosine_equals_the_sum_over_pairs(seed, k, scale):
    p, q, embeddings = draw(seed, scale=scale)
    form = MmdForm(top_k=k)
    want = naive(p, q, embeddings, form)
    np.testing.assert_allclose(fast(p, q, embeddings, form), want, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(fast(p, q, embeddings, form, torch.float32), want, rtol=1e-4, atol=1e-6)
    assert (want >= -1e-12).all() and (want <= 2).all()


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, WORDS), st.sampled_from([0.1, 0.5, 1, 3.0]))
def test_truncated_rbf_equals_the_sum_over_pairs(seed, k, sigma):
    p, q, embeddings = draw(seed)
    form = MmdForm("rbf", k, sigma)
    want = naive(p, q, embeddings, form)
    np.testing.assert_allclose(fast(p, q, embeddings, form), want, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(fast(p, q, embeddings, form, torch.float32), want, rtol=1e-4, atol=1e-6)


def test_the_closed_form_over_the_whole_vocabulary_is_the_sum_over_pairs():
    p, q, embeddings = draw(1)
    e, norms = torch.from_numpy(embeddings), torch.from_numpy(np.linalg.norm(embeddings, axis=1))
    got = mmd.shift_norm(torch.from_numpy(p - q), e, norms).numpy()
    np.testing.assert_allclose(got, naive(p, q, embeddings, MmdForm(top_k=WORDS)), rtol=1e-10)
    np.testing.assert_allclose(got, fast(p, q, embeddings, MmdForm(top_k=10 * WORDS)), rtol=1e-10)


def test_masses_that_differ_count_under_the_cosine_kernel():
    # One certain of a word, one flat over all: kept to the likeliest word, the masses are 1 and 1/4.
    p, q = np.array([[1.0, 0, 0, 0]]), np.full((1, 4), 0.25)
    embeddings = np.array([[3.0, 0], [0, 1.0], [-1.0, 0], [0, -2.0]])
    q[0, 0] += 1e-9
    got = fast(p, q, embeddings, MmdForm(top_k=1))
    np.testing.assert_allclose(got, [(0.75**2 + 0.75**2) / 2], rtol=1e-6)


def test_the_same_reading_twice_is_no_shift():
    p, _, embeddings = draw(2)
    for form in (MmdForm(top_k=4), MmdForm("rbf", 4, 0.5)):
        np.testing.assert_allclose(fast(p, p, embeddings, form, torch.float32), 0, atol=1e-7)


def test_row_blocks_and_half_precision_embeddings(monkeypatch):
    p, q, embeddings = draw(3, rows=11)
    rough = torch.from_numpy(embeddings).to(torch.bfloat16)
    norms = torch.linalg.vector_norm(rough.float(), dim=-1)
    for form in (MmdForm(top_k=5), MmdForm("rbf", 5, 1.5)):
        whole = fast(p, q, embeddings, form)
        arguments = (torch.from_numpy(p).float(), torch.from_numpy(q).float(), rough, norms, form)
        same = fast(p, q, rough.double().numpy(), form)
        np.testing.assert_allclose(mmd.truncated(*arguments).numpy(), same, rtol=1e-4, atol=1e-6)
        with monkeypatch.context() as patch:
            patch.setattr(mmd, "_BLOCK_BYTES", 2000)
            assert len(list(mmd._row_blocks(11, 700))) == 6
            np.testing.assert_allclose(fast(p, q, embeddings, form), whole, rtol=1e-12)


def test_output_rows_without_an_embedding_are_never_among_the_likeliest():
    p, q, embeddings = draw(4)
    p[:, -1] = 5.0
    form = MmdForm(top_k=3)
    got = fast(p, q, embeddings[:-2], form)
    np.testing.assert_allclose(got, naive(p[:, :-2], q[:, :-2], embeddings[:-2], form), rtol=1e-9)


@given(
    st.sampled_from(["cosine", "rbf"]),
    st.one_of(st.none(), st.integers(1, 10**6)),
    st.floats(1e-6, 1e6) | st.sampled_from([0.5, 1, 2, 0.7]),
)
def test_a_form_has_one_name_and_the_name_one_form(kernel, top_k, sigma):
    if kernel == "rbf" and top_k is None:
        with pytest.raises(InputError, match="has no closed form"):
            MmdForm(kernel, top_k, sigma)
        return
    form = MmdForm(kernel, top_k, sigma)
    back = mmd_form(form.name)
    assert back is not None and back.name == form.name and back.top_k == top_k and back.kernel == kernel
    assert kernel == "cosine" or back.sigma == float(sigma)
    assert check_signals([form.name]) == (form.name,)


def test_names_as_they_are_written():
    assert MmdForm().name == "mmd"
    assert MmdForm(top_k=100).name == "mmd_top100"
    assert MmdForm("rbf", 100).name == "mmd_rbf_top100_sigma1"
    assert MmdForm("rbf", 20, 0.5).name == "mmd_rbf_top20_sigma0.5"
    spec = spec_of("mmd_rbf_top20_sigma0.5")
    assert (spec.source, spec.axes) == ("contrast", "token") and "20" in spec.summary and "0.5" in spec.summary
    assert "mmd_top100" not in SIGNALS


@pytest.mark.parametrize(
    "name",
    ["mmd_", "mmd_top", "mmd_top0", "mmd_top007", "mmd_rbf", "mmd_rbf_sigma1", "mmd_rbf_top10", "mmd_top10_sigma1",
     "mmd_rbf_top10_sigma1.0", "mmd_rbf_top10_sigma0", "mmd_rbf_top10_sigma-1", "mmd_rbf_top10_sigmae", "mmd_top10 ",
     "mmd_rbf_top10_sigma1e999", "mmd_rbf_top10_sigma+1", "mmd_top١"],
)  # fmt: skip
def test_a_name_that_is_no_form_is_refused(name):
    assert mmd_form(name) is None
    with pytest.raises(UnknownNameError, match="Unknown signal"):
        check_signals([name])


@pytest.mark.parametrize("sigma", [0, -1, float("nan"), float("inf"), "1", None, True])
def test_a_width_that_is_none_is_refused(sigma):
    with pytest.raises(InputError, match="'sigma' parameter of MMD must be a finite number above 0"):
        MmdForm("rbf", 10, sigma)


def test_the_engine_yields_every_form_from_the_same_passes():
    lm = gs.LanguageModel(families.build("llama"), name="tiny-llama")
    rng = np.random.default_rng(5)
    cases = [reference.random_case(rng, reference.VOCAB, 1) for _ in range(3)]
    layouts = [
        gs.Layout.from_ids(c.prompt_ids, c.response_ids, passages=c.passages, contrast_prompt_ids=c.contrast_prompt_ids)
        for c in cases
    ]
    names = ["mmd_top7", "mmd", "mmd_rbf_top7_sigma0.5", "token_logprob_contrast"]
    together = lm.trace(layouts, names)
    everything = reference.VOCAB
    for trace, layout in zip(together, layouts, strict=True):
        assert list(trace) == names
        for name in names:
            np.testing.assert_allclose(lm.trace(layout, [name])[name], trace[name], rtol=1e-4, atol=1e-6)
        whole = lm.trace(layout, [f"mmd_top{everything}", "mmd"])
        np.testing.assert_allclose(whole[f"mmd_top{everything}"], whole["mmd"], rtol=1e-4, atol=1e-6)
        assert (trace["mmd_top7"] != trace["mmd"]).any()
