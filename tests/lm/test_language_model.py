"""The model that reads: wrapping, devices and types, limits, fingerprints."""

from pathlib import Path

import numpy as np
import pytest
import tokenizers_zoo as zoo
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MambaConfig, MambaForCausalLM

from groundscope import LanguageModel
from groundscope.errors import ContextTooLongError, InputError, PrerequisiteError
from groundscope.example import Example
from groundscope.lm.loading.embedded import embedded_status
from groundscope.lm.prompt.layout import Layout
from groundscope.lm.prompt.template import PromptTemplate


def tiny(vocabulary=470, length=256, layers=2):
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary, hidden_size=32, intermediate_size=64, num_hidden_layers=layers,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=length,
        )
    ).eval()  # fmt: skip


@pytest.fixture(scope="module")
def model():
    return tiny()


def test_the_wrapped_model_is_the_same_object(model):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    tokenizer = zoo.byte_level()
    lm = LanguageModel(model, tokenizer)
    assert lm.model is model
    assert lm.tokenizer is tokenizer
    lm.renderer().layout(Example("Why?", ("Because.",), "So."))
    assert lm.anatomy.heads == 4
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("given", ["smollm2-135m", None, 7, Path("x")])
def test_what_is_no_model_is_refused(given):
    with pytest.raises(InputError, match=rf"Got {type(given).__name__} instead.*from_pretrained"):
        LanguageModel(given)


def test_names(model):
    assert LanguageModel(model).name == "LlamaForCausalLM"
    assert LanguageModel(model, name="mine").name == "mine"


def test_without_a_tokenizer_layouts_come_from_ids(model):
    lm = LanguageModel(model)
    with pytest.raises(InputError, match=r"LlamaForCausalLM was wrapped without a tokenizer.*Layout\.from_ids"):
        lm.renderer()
    trace = lm.trace(Layout.from_ids([1, 2, 3], [4, 5]), ["token_logprob"])
    with torch.no_grad():
        logits = model(torch.tensor([[1, 2, 3, 4, 5]])).logits[0, 2:4].log_softmax(-1)
    np.testing.assert_allclose(trace["token_logprob"], [logits[0, 4], logits[1, 5]], rtol=1e-5)


def test_several_layouts_give_several_traces(model):
    lm = LanguageModel(model)
    layouts = [Layout.from_ids([1, 2, 3], [4, 5]), Layout.from_ids([7], [8])]
    traces = lm.trace(iter(layouts), ["token_logprob"])
    assert [trace["token_logprob"].shape for trace in traces] == [(2,), (1,)]
    assert lm.trace([], ["token_logprob"]) == []


def test_max_length(model):
    assert LanguageModel(model).max_length == 256
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=77, n_embd=8, n_layer=1, n_head=2))
    assert LanguageModel(gpt2).max_length == 77
    mamba = MambaForCausalLM(MambaConfig(vocab_size=50, hidden_size=8, num_hidden_layers=1, state_size=4))
    assert LanguageModel(mamba).max_length is None


def test_the_renderer_knows_the_limit(model):
    lm = LanguageModel(model, zoo.byte_level())
    assert lm.renderer().max_length == 256
    with pytest.raises(ContextTooLongError, match="reads at most 256"):
        lm.renderer().layout(Example("Why?", ("Because of it. " * 100,), "So."))
    template = PromptTemplate(user="{passages} {question}")
    assert lm.renderer(template).template is template


@pytest.mark.parametrize("dtype", ["float8", "int8", "fp16", "", 32])
def test_an_unknown_dtype_is_refused_before_loading(dtype, tmp_path):
    with pytest.raises(InputError, match=r"float32, bfloat16, float16, float64 or auto\. Got"):
        LanguageModel.from_pretrained(tmp_path / "never/read", dtype=dtype, device="cpu")


@pytest.mark.parametrize("device", ["gpu", "", "cuda:x", "cpu,cuda"])
def test_an_unknown_device_is_refused_before_loading(device, tmp_path):
    with pytest.raises(InputError, match=r"'cpu', 'cuda', 'cuda:1' or 'mps'\. Got"):
        LanguageModel.from_pretrained(tmp_path / "never/read", device=device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda")])
def test_a_gpu_that_is_not_there(device, tmp_path):
    with pytest.raises(PrerequisiteError, match=r"no GPU here\. Use device='cpu'"):
        LanguageModel.from_pretrained(tmp_path / "never/read", device=device)


def test_fingerprints_tell_models_tokenizers_and_templates_apart(model):
    tokenizer = zoo.byte_level()
    base = LanguageModel(model, tokenizer).fingerprint()
    assert base == LanguageModel(model, zoo.byte_level()).fingerprint()
    assert base["layers"] == 2
    assert base["heads"] == 4
    assert base["attention_layers"] == [0, 1]

    def differs(lm, field, template=None):
        other = lm.fingerprint(template)
        assert {key for key in base if other[key] != base[key]} >= {field}

    differs(LanguageModel(model, tokenizer, name="other"), "model")
    differs(LanguageModel(tiny(layers=1), tokenizer), "layers")
    differs(LanguageModel(model, zoo.byte_level(zoo.INST)), "tokenizer")
    differs(LanguageModel(model, zoo.metaspace()), "tokenizer")
    differs(LanguageModel(model), "tokenizer")
    differs(LanguageModel(model, tokenizer), "template", PromptTemplate(separator="\n"))


def test_embedding_norms(model):
    lm = LanguageModel(model)
    weight = model.get_input_embeddings().weight
    assert lm.input_embeddings().data_ptr() == weight.data_ptr()
    assert not lm.input_embeddings().requires_grad
    torch.testing.assert_close(lm.embedding_norms(), weight.detach().norm(dim=-1))
    assert lm.embedding_norms() is lm.embedding_norms()


def test_the_embedded_model():
    if not embedded_status("smollm2-135m").cached:
        pytest.skip("the embedded model is not in the cache; `groundscope models` fetches it")
    lm = LanguageModel.from_pretrained("SmolLM2-135M-Instruct", device="cpu")
    assert (lm.max_length, lm.dtype, len(lm.anatomy.layers), lm.anatomy.heads) == (8192, torch.float32, 30, 9)
    assert not lm.model.training
    assert lm.support()["problems"] == {}
    item = Example("When was it completed?", ("The tower was completed in 1889.",), "It was completed in 1889.")
    trace = lm.trace(lm.renderer().layout(item), ["token_logprob"])
    # A real model expects the year that the passage names, more than another one.
    other = lm.trace(lm.renderer().layout(item.with_response("It was completed in 1742.")), ["token_logprob"])
    assert trace["token_logprob"].mean() > other["token_logprob"].mean() + 0.5
