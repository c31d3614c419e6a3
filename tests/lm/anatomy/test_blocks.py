"""The anatomy found by watching a model equals what was written down by reading its code."""

from __future__ import annotations

import pytest
import torch

import groundscope as gs
from groundscope.errors import NonFiniteError, UnsupportedModelError
from groundscope.lm.anatomy.blocks import inspect_model
from groundscope.lm.anatomy.interface import AttentionTap
from reference import VOCAB, families
from reference.families import FAMILIES, SUPPORTED, submodule


def inspect(model):
    return inspect_model(model, AttentionTap(model))


def hooks(model) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


@pytest.mark.parametrize("name", SUPPORTED)
def test_layers_attention_and_heads(name):
    model, family = families.build(name), FAMILIES[name]
    anatomy = inspect(model)
    assert not anatomy.problems
    assert list(anatomy.layers) == list(submodule(model, family.layers))
    assert anatomy.attention_layers == family.layers_with_attention
    assert len(anatomy.mids) == family.n_layers
    assert all((mid.reader is None) == family.parallel for mid in anatomy.mids)
    for module, index in anatomy.attention.items():
        assert module in set(anatomy.layers[index].modules())
    assert hooks(model) == 0


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "cohere", "opt", "granite", "gpt_neox", "phi", "nemotron"])
def test_last_layers_lens_is_the_models_own_output_and_normed_once(name):
    model = families.build(name)
    anatomy = inspect(model)
    states = {}
    handle = anatomy.layers[-1].register_forward_hook(
        lambda _m, _a, out: states.update(last=out if isinstance(out, torch.Tensor) else out[0])
    )
    ids = (torch.arange(12) * 5 % VOCAB)[None]
    with torch.inference_mode():
        logits = model(input_ids=ids).logits
        handle.remove()
        lens = anatomy.unembedding
        torch.testing.assert_close(lens.logits(lens.normed(states["last"])), logits, rtol=1e-4, atol=1e-4)
        if lens.norms:
            assert (lens.logits(states["last"]) - logits).abs().max() > 1e-2  # no norm
            if name != "opt":  # its last module projects: a second time does not fit
                twice = lens.logits(lens.normed(lens.normed(states["last"])))
                assert (twice - logits).abs().max() > 1e-2


@pytest.mark.parametrize(
    ("name", "scale", "softcap"),
    [("gemma2", 1.0, "final_logit_softcapping"), ("granite", "logits_scaling", None), ("cohere", "logit_scale", None)],
)
def test_factors_on_the_logits_are_read_off_them(name, scale, softcap):
    model = families.build(name)
    found = inspect(model).unembedding
    if softcap:
        assert found.softcap == getattr(model.config, softcap)
    if isinstance(scale, str):
        value = getattr(model.config, scale)
        scale = 1 / value if scale == "logits_scaling" else value
    assert found.scale == pytest.approx(scale, rel=1e-4)


def test_two_rounds_of_looking_find_the_same():
    model = families.build("llama")
    one, two = inspect(model), inspect(model)
    assert one.attention == two.attention and one.mids == two.mids and one.unembedding == two.unembedding


def test_looking_leaves_training_mode_and_attention_as_they_were():
    model = families.build("llama").train()
    model.set_attn_implementation("eager")
    inspect(model)
    assert model.training and model.config._attn_implementation == "eager" and hooks(model) == 0


def test_a_module_without_layers_is_refused():
    from transformers import BertConfig, BertModel

    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    for model in (
        BertModel(BertConfig(vocab_size=50, **small)),
        families.build("llama").model,
        families.build("gpt2").transformer,
        torch.nn.Sequential(torch.nn.Linear(2, 2)),
    ):
        with pytest.raises(UnsupportedModelError, match="AutoModelForCausalLM"):
            inspect(model)


def test_a_model_whose_every_output_is_nan_is_called_broken_not_unsupported():
    model = families.build("llama")
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight.fill_(float("nan"))
    with pytest.raises(NonFiniteError, match="NaN"):
        gs.LanguageModel(model).trace(gs.Layout.from_ids([1, 5, 6], [7, 8], passages=[(1, 2)]), ["token_logprob"])
