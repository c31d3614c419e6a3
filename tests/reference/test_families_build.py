"""The tiny models are what the table says: each claim about anatomy is checked on the model itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from reference import FAMILIES, REFUSED, SIGNALS, SUPPORTED, VOCAB, WINDOW, build, random_case, run
from reference.families import submodule
from reference.model_pass import in_float64, lens, read


@pytest.fixture(scope="module", params=SUPPORTED)
def family_pass(request: pytest.FixtureRequest) -> tuple:
    family = FAMILIES[request.param]
    twin = in_float64(build(request.param))
    case = random_case(np.random.default_rng(5), VOCAB, n_passages=2)
    ids = case.prompt_ids + case.response_ids
    return family, twin, ids, read(twin, family, ids)


def test_lens_of_last_layer_is_the_models_output(family_pass):
    family, twin, _, got = family_pass
    np.testing.assert_allclose(lens(twin, family, got.post[-1]), got.logits, rtol=1e-9, atol=1e-9)
    assert got.logits.std() > 0.3
    if family.norm:  # a norm applied twice must show
        assert np.abs(lens(twin, family, got.states) - got.logits).max() > 1e-2


def test_attention_is_in_the_declared_layers(family_pass):
    family, twin, ids, got = family_pass
    layers = list(submodule(twin, family.layers))
    assert (
        tuple(i for i, layer in enumerate(layers) if hasattr(layer, family.attention)) == family.layers_with_attention
    )
    assert len(got.attentions) == len(family.layers_with_attention)
    for weights in got.attentions:
        assert weights.shape == (4, len(ids), len(ids))
        assert np.isfinite(weights).all()
        assert np.triu(weights.max(axis=0), 1).max() == 0
        sums = weights.sum(axis=-1)
        if family.sinks:
            assert (sums < 1 - 1e-6).all()
        else:
            np.testing.assert_allclose(sums, 1, atol=1e-12)
        uniform = 1 / np.arange(1, len(ids) + 1)
        assert np.median(weights[:, -10:].max(axis=-1) / uniform[-10:]) > 2, "attention is nearly uniform"


def test_windows_are_where_declared(family_pass):
    family, _, ids, got = family_pass
    last = len(ids) - 1
    for layer, weights in zip(family.layers_with_attention, got.attentions, strict=True):
        outside = weights[:, last, : last - WINDOW + 1].max()
        assert (outside == 0) == (layer in family.sliding_layers)


def test_mid_plus_ffn_is_the_layers_output(family_pass):
    family, twin, ids, got = family_pass
    if family.ffn is None:
        pytest.skip("the layer does more after the FFN")
    added: list[torch.Tensor] = []

    def keep(module, args, output):
        added.append((output[0] if isinstance(output, tuple) else output).detach().clone().reshape(len(ids), -1))

    handles = [layer.get_submodule(family.ffn).register_forward_hook(keep) for layer in submodule(twin, family.layers)]
    again = read(twin, family, ids)
    for handle in handles:
        handle.remove()
    scale = getattr(twin.config, family.ffn_scale) if family.ffn_scale else 1.0
    np.testing.assert_allclose(again.mid + scale * torch.stack(added).numpy(), got.post, atol=1e-9)
    assert np.abs(got.mid - got.post).max() > 1e-2


def test_states_are_normed_last_hidden_states(family_pass):
    _, twin, ids, got = family_pass
    with torch.no_grad():
        last = twin(input_ids=torch.tensor([ids]), output_hidden_states=True, use_cache=False).hidden_states[-1][0]
    np.testing.assert_allclose(got.states, last.numpy(), atol=1e-4)  # the library norms in float32


@pytest.mark.parametrize("name", SUPPORTED)
def test_reference_runs_and_leaves_the_model_alone(name):
    model = build(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    implementation = model.config._attn_implementation
    case = random_case(np.random.default_rng(1), VOCAB, n_passages=2)
    result = run(model, *case, family=name)
    assert set(SIGNALS) <= set(result)
    layers, tokens = FAMILIES[name].n_layers, len(case.response_ids)
    assert result["lookback_ratio"].shape == (tokens, len(FAMILIES[name].layers_with_attention), 4)
    assert result["lens_entropy"].shape == (tokens, layers)
    assert result["passage_attention"].shape == (tokens, 2)
    for signal in SIGNALS:
        assert np.isfinite(result[signal]).all(), signal
        assert result[signal].dtype == np.float64
    assert model.config._attn_implementation == implementation
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


@pytest.mark.parametrize("name", REFUSED)
def test_refused_families_build_and_run(name):
    model = build(name)
    with torch.no_grad():
        assert torch.isfinite(model(input_ids=torch.arange(3, 20)[None]).logits).all()


def test_build_is_deterministic_and_seeded():
    first, same, other = build("llama"), build("llama"), build("llama", seed=1)
    weight = "model.layers.0.self_attn.q_proj.weight"
    assert torch.equal(first.state_dict()[weight], same.state_dict()[weight])
    assert not torch.equal(first.state_dict()[weight], other.state_dict()[weight])


def test_survey_is_broad_enough():
    kinds = {FAMILIES[name].model_type for name in SUPPORTED}
    assert len(kinds) >= 35
