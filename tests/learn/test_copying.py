"""Copying scores equal those of whole word-by-word matrices, whatever way a family keeps its weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import groundscope as gs
from groundscope.errors import GroundscopeError, InputError, UnsupportedModelError
from groundscope.learn.copying import CopyingScores, copying_heads, copying_scores
from groundscope.lm.circuits import head_weights
from reference import VOCAB, families


def plain(module, names=("v_proj", "o_proj")):
    """(value, output) matrices, (channel in, channel out), of separate projections."""
    return tuple(getattr(module, name).weight.detach().numpy().T for name in names)


def of_gpt2(module):
    return module.c_attn.weight.detach().numpy()[:, 64:], module.c_proj.weight.detach().numpy()


def of_neox(module):
    fused = module.query_key_value.weight.detach().numpy().reshape(4, 3, 8, 32)  # head, q/k/v, channel, in
    return fused[:, 2].reshape(32, 32).T, module.dense.weight.detach().numpy().T


def of_phi3(module):
    return module.qkv_proj.weight.detach().numpy()[48:].T, module.o_proj.weight.detach().numpy().T


# How each family keeps value and output matrices, written down from its own code.
READERS = {
    "llama": plain,
    "mistral_full": plain,
    "qwen2": plain,
    "qwen3": plain,
    "mixtral": plain,
    "gemma2": plain,
    "gpt_oss": plain,
    "olmo2": plain,
    "stablelm_parallel": plain,
    "phi": lambda module: plain(module, ("v_proj", "dense")),
    "gptj": lambda module: plain(module, ("v_proj", "out_proj")),
    "opt": lambda module: plain(module, ("v_proj", "out_proj")),
    "lfm2": lambda module: plain(module, ("v_proj", "out_proj")),
    "gpt2": of_gpt2,
    "gpt_neox": of_neox,
    "phi3": of_phi3,
}


def naive(model, name):
    """Trace and outliers of every head, from the whole matrix."""
    family, heads = families.FAMILIES[name], 4
    words = model.get_input_embeddings().weight.detach().numpy()
    unwords = model.get_output_embeddings().weight.detach().numpy()
    layers = model.get_submodule(family.layers)
    traces, outliers = [], []
    for index in family.layers_with_attention:
        value, output = READERS[name](getattr(layers[index], family.attention))
        width = output.shape[0] // heads
        key_heads = value.shape[1] // width
        for head in range(heads):
            key_head = head // (heads // key_heads)
            v = value[:, key_head * width : (key_head + 1) * width]
            o = output[head * width : (head + 1) * width]
            matrix = (words @ v @ o @ unwords.T).T  # (word written, word read)
            traces.append(np.trace(matrix))
            centres = np.diag(matrix)
            radii = np.abs(matrix - np.diag(centres)).sum(axis=1)
            points = np.concatenate([radii + centres, radii - centres])
            q1, q3 = np.percentile(points, 25), np.percentile(points, 75)
            outliers.append(sum(p < q1 - 1.5 * (q3 - q1) or p > q3 + 1.5 * (q3 - q1) for p in points))
    shape = (len(family.layers_with_attention), heads)
    return np.reshape(traces, shape), np.reshape(outliers, shape)


@pytest.mark.parametrize("name", READERS)
def test_scores_equal_those_of_the_whole_matrix(name, monkeypatch):
    from groundscope.learn import copying

    monkeypatch.setattr(copying, "_BLOCK", 8 * VOCAB * 7)  # seven rows at a time
    model = families.build(name, dtype=torch.float64)
    lm = gs.LanguageModel(model, name=name)
    got = copying_scores(lm, rows=None)
    traces, outliers = naive(model, name)
    assert got.layers == families.FAMILIES[name].layers_with_attention
    assert got.rows == VOCAB
    np.testing.assert_allclose(got.traces, traces, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(got.outliers, outliers)
    assert len(np.unique(outliers)) > 1


# Values behind a norm or a clamp, gated outputs, projected embeddings.
REFUSED = {"deepseek_v3", "gemma4_text", "olmoe", "opt_post_norm", "qwen3_next", "qwen3_5_text"}


def seen_of_one_token(model, module, token):
    """What an attention module reads and writes for a text of one token, which can attend to itself only."""
    seen = []

    def keep(_module, args, kwargs, output):
        seen.append((args[0] if args else kwargs["hidden_states"], output[0]))

    handle = module.register_forward_hook(keep, with_kwargs=True)
    with torch.no_grad():
        model(input_ids=torch.tensor([[token]]), use_cache=False)
    handle.remove()
    ((read, written),) = seen
    return read[0, 0], written.reshape(-1)


@pytest.mark.parametrize("name", [name for name in families.SUPPORTED if name not in {*READERS, *REFUSED}])
def test_what_heads_write_is_what_their_matrices_say(name):
    model = families.build(name, dtype=torch.float64)
    lm = gs.LanguageModel(model, name=name)
    weights = head_weights(lm)
    assert tuple(weights) == families.FAMILIES[name].layers_with_attention
    for module, index in lm.anatomy.attention.items():
        layer = weights[index]
        (read, written), (other_read, other_written) = (seen_of_one_token(model, module, token) for token in (7, 30))
        moved = read - other_read  # what biases add is the same for both
        want = sum(
            moved @ layer.value[head * len(layer.value) // len(layer.output)] @ layer.output[head]
            for head in range(len(layer.output))
        )
        torch.testing.assert_close(written - other_written, want, rtol=1e-5, atol=1e-6)
        assert want.abs().max() > 1e-3


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_models_that_do_more_than_matrices_are_refused_in_words(name):
    lm = gs.LanguageModel(families.build(name, dtype=torch.float64), name=name)
    with pytest.raises(UnsupportedModelError, match=f"{name} does not show what its heads copy: .*"):
        head_weights(lm)


def test_the_model_is_left_as_it_was():
    model = families.build("llama")
    lm = gs.LanguageModel(model)
    ids = torch.arange(3, 12)[None]
    with torch.no_grad():
        before = model(input_ids=ids).logits
        head_weights(lm)
        after = model(input_ids=ids).logits
    assert torch.equal(before, after)
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


def test_a_copying_head_is_found():
    """One head is made to write back what it reads."""
    model = families.build("llama", dtype=torch.float64)
    attention = model.model.layers[1].self_attn
    with torch.no_grad():
        model.get_output_embeddings().weight.copy_(model.get_input_embeddings().weight)
        value = attention.v_proj.weight[8:16]
        attention.o_proj.weight[:, 24:32] = 5 * value.t()
    scores = copying_scores(gs.LanguageModel(model), rows=None)
    assert np.abs(scores.traces).argmax() == 1 * 4 + 3 and scores.traces[1, 3] > 0


def test_samples_are_seeded_and_the_same_for_all_heads():
    lm = gs.LanguageModel(families.build("llama"))
    one, same, other = (copying_scores(lm, rows=40, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.outliers, same.outliers)
    np.testing.assert_array_equal(one.traces, other.traces)
    assert one.rows == 40 and (one.outliers != other.outliers).any() and one.outliers.max() <= 80
    assert copying_scores(lm, rows=10**6).rows == VOCAB
    heads = copying_heads(lm, 5, rows=40)
    assert heads == one.best(5) and len(set(heads)) == 5
    assert len(copying_heads(lm, 99, rows=40)) == 12


def test_ranks_add_few_outliers_and_large_traces_of_either_sign():
    scores = CopyingScores((2, 5), np.array([[1.0, -9.0], [3.0, 3.0]]), np.array([[0, 4], [2, 2]]), 50)
    np.testing.assert_array_equal(scores.ranks, [[1 + 4, 4 + 1], [2.5 + 2.5, 2.5 + 2.5]])
    assert scores.best(3) == [(2, 0), (2, 1), (5, 0)]
    clear = CopyingScores((2, 5), np.array([[1.0, -9.0], [3.0, 2.0]]), np.array([[3, 0], [1, 2]]), 50)
    assert clear.best(4) == [(2, 1), (5, 0), (5, 1), (2, 0)]


@pytest.mark.parametrize(("arguments", "words"), [({"rows": 3}, "at least 4"), ({"rows": 0}, "at least 1")])
def test_impossible_samples_are_refused(arguments, words):
    with pytest.raises(InputError, match=words):
        copying_scores(gs.LanguageModel(families.build("llama")), **arguments)
    with pytest.raises(InputError, match="'count' parameter"):
        copying_heads(gs.LanguageModel(families.build("llama")), 0)


@pytest.mark.parametrize("name", families.REFUSED)
def test_models_without_readable_attention_are_refused(name):
    with pytest.raises(GroundscopeError):
        copying_heads(gs.LanguageModel(families.build(name)))
