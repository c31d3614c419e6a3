"""A real, tiny embedded model: a random llama as a GGUF file inside an installable wheel."""

import hashlib
import json
import zipfile
from dataclasses import asdict
from pathlib import Path

import gguf
import numpy as np

from groundscope.lm.loading.catalog import EmbeddedModel

MEMBER = "groundscope_tiny/tiny.gguf"
REQUIREMENT = "groundscope-tiny==1.0"
WHEEL_VARIABLE = "GROUNDSCOPE_TINY_WHEEL"
HEADS, KV_HEADS, HIDDEN, INNER, LAYERS, CONTEXT = 4, 2, 32, 64, 2, 128
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"
_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_MERGES = ["Ċ Ċ", "t h", "Ġ th"]


def tiny_llama():
    """A random llama with tied embeddings, the same at every call."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(_tokens()), hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5, tie_word_embeddings=True,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return LlamaForCausalLM(config).eval()


def write_gguf(path: Path) -> None:
    """Write the tiny llama as llama.cpp's converter would; ``ffn_down`` is quantised to Q4_1."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(len(_tokens()))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(_tokens())
    writer.add_token_types([3] * len(_SPECIAL) + [1] * (len(_tokens()) - len(_SPECIAL)))
    writer.add_token_merges(_MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    for name, array in _arrays().items():
        if name.endswith("ffn_down.weight"):
            packed = gguf.quants.quantize(array, gguf.GGMLQuantizationType.Q4_1)
            writer.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def build_wheel(folder: Path) -> tuple[Path, EmbeddedModel]:
    """Put the GGUF file into a wheel that pip accepts; return it and its description."""
    source = folder / "tiny.gguf"
    write_gguf(source)
    wheel = folder / "groundscope_tiny-1.0-py3-none-any.whl"
    info = "groundscope_tiny-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(source, MEMBER)
        archive.writestr("groundscope_tiny/__init__.py", "raise SystemExit('this code must never run')\n")
        archive.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: groundscope-tiny\nVersion: 1.0\nRequires-Dist: no-such-thing==9\n",
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    model = EmbeddedModel(
        name="tiny",
        title="Tiny",
        requirement=REQUIREMENT,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_variable=WHEEL_VARIABLE,
        member=MEMBER,
        gguf_sha256=hashlib.sha256(source.read_bytes()).hexdigest(),
        download_bytes=wheel.stat().st_size,
        disk_bytes=1_000_000,
        licence="CC0-1.0",
        layers=LAYERS,
        heads=HEADS,
        context=CONTEXT,
    )
    source.unlink()
    return wheel, model


def as_json(model: EmbeddedModel) -> str:
    """Write a description so that another process can rebuild it by ``EmbeddedModel(**...)``."""
    return json.dumps(asdict(model))


def interleave(weight: np.ndarray, heads: int) -> np.ndarray:
    """Order the rows of a query or key projection as llama.cpp stores them (rotary pairs side by side)."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def _tokens() -> list[str]:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    merged = [merge.replace(" ", "") for merge in _MERGES]
    return _SPECIAL + sorted(bytes_to_unicode().values()) + merged


def _arrays() -> dict[str, np.ndarray]:
    state = {name: value.detach().numpy() for name, value in tiny_llama().state_dict().items()}
    arrays = {"token_embd.weight": state["model.embed_tokens.weight"]}
    names = {
        "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj", "attn_norm": "input_layernorm", "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_norm": "post_attention_layernorm",
    }  # fmt: skip
    for layer in range(LAYERS):
        for short, long in names.items():
            array = state[f"model.layers.{layer}.{long}.weight"]
            heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(short)
            arrays[f"blk.{layer}.{short}.weight"] = interleave(array, heads) if heads else array
    arrays["output_norm.weight"] = state["model.norm.weight"]
    return arrays
