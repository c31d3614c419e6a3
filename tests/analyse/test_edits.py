"""Changes to a model while it reads: as a naive pass computes them, and gone without a trace afterwards."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from transformers import AttentionInterface
from transformers.models.llama.modeling_llama import repeat_kv

import groundscope as gs
from groundscope.analyse.edits import amplified_feed_forward, first_response_row, noise, random_attention
from groundscope.errors import InputError
from reference import families

IDS = torch.arange(3, 43)[None]
HEADS = [(0, 1), (2, 0), (2, 3)]


def logits(lm, attention=True):
    with torch.no_grad(), lm.tap.open(attention=attention):
        return lm.model(input_ids=IDS).logits


def state(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def naive_attention(module, query, key, value, mask, scaling, *, first, seed, heads, **_):
    """Eager attention whose weights are overwritten, written apart from the product's code."""
    key, value = repeat_kv(key, module.num_key_value_groups), repeat_kv(value, module.num_key_value_groups)
    size = key.shape[2]
    causal = torch.ones(size, size, dtype=torch.bool).tril()
    weights = torch.softmax((query @ key.mT * scaling).masked_fill(~causal, -torch.inf), dim=-1)
    for layer, head in heads:
        if layer == module.layer_idx:
            drawn = noise(seed, layer, head, size, size).to(weights).masked_fill(~causal, -torch.inf)
            weights[0, head, first:] = torch.softmax(drawn, dim=-1)[first:]
    return (weights @ value).transpose(1, 2).contiguous(), None


@pytest.mark.parametrize("first", [0, 25])
def test_random_attention_equals_a_naive_pass(make_tiny, first):
    lm = make_tiny()
    lm.model.double()
    with random_attention(lm, HEADS, first_row=first, seed=5):
        got = logits(lm)
    AttentionInterface.register(
        "naive_noise", lambda *a, **k: naive_attention(*a, **{**k, "first": first, "seed": 5, "heads": HEADS})
    )
    twin = copy.deepcopy(lm.model)
    twin.set_attn_implementation("naive_noise")
    with torch.no_grad():
        want = twin(input_ids=IDS).logits
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
    plain = logits(lm)
    assert (got - plain).abs().max() > 0.05
    assert torch.equal(got[:, :first], plain[:, :first])


@pytest.mark.parametrize("first", [0, 25])
def test_amplification_equals_a_naive_pass(make_tiny, first):
    lm = make_tiny()
    layers, factor = [0, 2], 3.0
    with amplified_feed_forward(lm, layers, factor, first_row=first):
        got = logits(lm)
    twin = copy.deepcopy(lm.model)

    def scaled(_module, _args, output):
        output = output.clone()
        output[:, first:] *= factor
        return output

    for layer in layers:
        twin.model.layers[layer].mlp.register_forward_hook(scaled)
    with torch.no_grad():
        want = twin(input_ids=IDS).logits
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    assert (got - logits(lm)).abs().max() > 0.05


def test_parallel_layers_are_amplified_too():
    lm = gs.LanguageModel(families.build("gpt_neox").eval())
    assert all(mid.reader is None for mid in lm.anatomy.mids)
    twin = copy.deepcopy(lm.model)
    twin.gpt_neox.layers[1].mlp.register_forward_hook(lambda _m, _a, out: 2 * out)
    with amplified_feed_forward(lm, [1], 2.0):
        got = logits(lm, attention=False)
    with torch.no_grad():
        torch.testing.assert_close(got, twin(input_ids=IDS).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(
    "change", [lambda lm: random_attention(lm, HEADS), lambda lm: amplified_feed_forward(lm, [0, 1], 10.0)]
)
def test_the_model_is_as_it_was_afterwards(make_tiny, change, fails):
    lm = make_tiny()
    lm.model.train()
    before, weights, implementation = hooks(lm.model), state(lm.model), lm.model.config._attn_implementation
    lm.model.eval()
    plain = logits(lm, attention=False)
    lm.model.train()
    try:
        with change(lm):
            logits(lm)
            if fails:
                raise RuntimeError("inside")
    except RuntimeError:
        assert fails
    assert lm.model.training and lm.model.config._attn_implementation == implementation
    assert hooks(lm.model) == before
    assert all(torch.equal(value, lm.model.state_dict()[name]) for name, value in weights.items())
    assert torch.equal(logits(lm, attention=False), plain)


@pytest.mark.parametrize(
    "change",
    [
        lambda lm: random_attention(lm, []),
        lambda lm: amplified_feed_forward(lm, [], 10.0),
        lambda lm: amplified_feed_forward(lm, [0, 1, 2], 1.0),
    ],
)
def test_nothing_to_change_changes_nothing(tiny, change):
    plain = logits(tiny, attention=False)
    with change(tiny):
        assert torch.equal(logits(tiny, attention=False), plain)


def test_nested_changes_add_up_and_other_models_see_none(make_tiny):
    lm, other = make_tiny(), make_tiny()
    with random_attention(lm, HEADS, seed=1):
        both = logits(lm)
    with random_attention(lm, HEADS[:1], seed=1), random_attention(lm, HEADS[1:], seed=1):
        torch.testing.assert_close(logits(lm), both)
        assert torch.equal(logits(other), logits(make_tiny()))


def test_another_thread_reads_the_model_unchanged(make_tiny):
    import threading

    lm = make_tiny()
    plain, seen = logits(lm), []
    with random_attention(lm, HEADS), amplified_feed_forward(lm, [0, 1], 10.0):
        thread = threading.Thread(target=lambda: seen.append(logits(lm)))
        thread.start()
        thread.join()
        assert not torch.allclose(logits(lm), plain)
    assert torch.equal(seen[0], plain)


def test_noise_depends_on_seed_layer_and_head():
    base = noise(0, 1, 2, 5, 7)
    assert torch.equal(base, noise(0, 1, 2, 5, 7)) and base.shape == (5, 7)
    for other in (noise(1, 1, 2, 5, 7), noise(0, 2, 1, 5, 7), noise(0, 1, 3, 5, 7)):
        assert not torch.equal(base, other)
    assert abs(float(noise(0, 0, 0, 200, 200).std()) - 1) < 0.02


def test_wrong_places_are_refused_before_anything_is_read(tiny):
    for head in ((3, 0), (0, 4), (-1, 0)):
        with pytest.raises(InputError, match="has heads 0 to 3"), random_attention(tiny, [head]):
            pass
    with pytest.raises(InputError, match="layers 0 to 2"), amplified_feed_forward(tiny, [3]):
        pass
    with pytest.raises(InputError, match="finite"), amplified_feed_forward(tiny, [0], np.nan):
        pass
    with pytest.raises(InputError, match="rows"):
        first_response_row("prompt", 3)


def test_heads_are_not_changed_in_batches(tiny):
    with random_attention(tiny, HEADS), tiny.tap.open(), torch.no_grad(), pytest.raises(InputError, match="batch"):
        tiny.model(input_ids=IDS.expand(2, -1))
