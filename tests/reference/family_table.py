"""Configurations and anatomy of the tiny families (see `Family` for the meaning of the fields)."""

from __future__ import annotations

from typing import Any

VOCAB = 101
WINDOW = 8
HEADS = 4

_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_MHA: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": HEADS,
    "max_position_embeddings": 256,
    **_TOKENS,
}
_GQA: dict[str, Any] = {**_MHA, "num_key_value_heads": 2}
_WIDE: dict[str, Any] = {**_GQA, "head_dim": 16}  # heads × head size is not the hidden size
_SLIDING = "sliding_attention"
_FULL = "full_attention"
_MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
_LINEAR = {
    "linear_conv_kernel_dim": 3,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
_GPT2 = {"vocab_size": VOCAB, "n_embd": 32, "n_layer": 3, "n_head": HEADS, "n_positions": 256, **_TOKENS}


def _row(name: str, config: dict[str, Any], *, model_type: str | None = None, **anatomy: Any) -> dict[str, Any]:
    return {"name": name, "model_type": model_type or name, "config": config, **anatomy}


def _types(*kinds: str) -> dict[str, Any]:
    return {"num_hidden_layers": len(kinds), "layer_types": list(kinds)}


_PRE_FFN = {"mid": "pre_feedforward_layernorm", "ffn": "post_feedforward_layernorm"}
_POST_NORM = {"mid": "mlp", "ffn": "post_feedforward_layernorm"}

TABLE: list[dict[str, Any]] = [
    _row("llama", _GQA),
    _row("mistral", {**_GQA, "sliding_window": WINDOW}, sliding_layers=(0, 1, 2)),
    _row("mistral_full", {**_WIDE, "sliding_window": None}, model_type="mistral"),
    _row(
        "ministral",
        {**_WIDE, "sliding_window": WINDOW, **_types(_FULL, _SLIDING, _FULL)},
        sliding_layers=(1,),
    ),
    _row("mixtral", {**_GQA, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}),
    _row(
        "qwen2",
        {**_GQA, "use_sliding_window": True, "sliding_window": WINDOW, **_types(_FULL, _SLIDING, _SLIDING)},
        sliding_layers=(1, 2),
        notes="biases on query, key and value",
    ),
    _row("qwen2_moe", {**_GQA, **_MOE, "shared_expert_intermediate_size": 24}),
    _row("qwen3", _WIDE, notes="norms on query and key heads"),
    _row("qwen3_moe", {**_WIDE, **_MOE}),
    _row(
        "qwen3_next",
        {**_WIDE, **_MOE, **_LINEAR, "shared_expert_intermediate_size": 24}
        | _types("linear_attention", _FULL, "linear_attention", _FULL),
        attention_layers=(1, 3),
        notes="gated attention output; linear attention between",
    ),
    _row(
        "qwen3_5_text",
        {**_WIDE, **_LINEAR, **_types("linear_attention", "linear_attention", "linear_attention", _FULL)},
        attention_layers=(3,),
        notes="gated attention output; linear attention between",
    ),
    _row("gemma", _WIDE, notes="norm weight is 1 + w; embeddings scaled by sqrt(hidden)"),
    _row(
        "gemma2",
        {**_WIDE, "query_pre_attn_scalar": 16, "sliding_window": WINDOW, "attn_logit_softcapping": 2.0}
        | {"final_logit_softcapping": 3.0, **_types(_SLIDING, _FULL, _SLIDING)},
        **_PRE_FFN,
        sliding_layers=(0, 2),
        softcap=True,
        logit_softcap="final_logit_softcapping",
    ),
    _row(
        "gemma3_text",
        {**_WIDE, "query_pre_attn_scalar": 16, "sliding_window": WINDOW, **_types(_SLIDING, _SLIDING, _FULL)},
        **_PRE_FFN,
        sliding_layers=(0, 1),
    ),
    _row(
        "gemma4_text",
        {**_WIDE, "sliding_window": WINDOW, "global_head_dim": 24, "hidden_size_per_layer_input": 8}
        | {"vocab_size_per_layer_input": VOCAB, "num_kv_shared_layers": 2, "final_logit_softcapping": 3.0}
        | _types(_SLIDING, _FULL, _SLIDING, _FULL),
        mid="pre_feedforward_layernorm",
        ffn=None,
        sliding_layers=(0, 2),
        logit_softcap="final_logit_softcapping",
        notes="per-layer inputs and a layer scalar after the FFN; head size differs by layer kind; the last "
        "two layers share keys and values with earlier ones",
    ),
    _row(
        "gpt_oss",
        {**_WIDE, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": WINDOW}
        | _types(_SLIDING, _FULL, _SLIDING),
        sliding_layers=(0, 2),
        sinks=True,
        notes="the FFN returns (output, router scores)",
    ),
    _row("phi", _GQA, norm="model.final_layernorm", mid="parallel", notes="unembedding has a bias"),
    _row("phi3", {**_GQA, "sliding_window": None}),
    _row("phi3_sliding", {**_GQA, "sliding_window": WINDOW}, model_type="phi3", sliding_layers=(0, 1, 2)),
    _row("gpt2", _GPT2, layers="transformer.h", norm="transformer.ln_f", attention="attn", mid="ln_2"),
    _row(
        "gpt_neox",
        {**_MHA, "use_parallel_residual": True},
        layers="gpt_neox.layers",
        norm="gpt_neox.final_layer_norm",
        attention="attention",
        mid="parallel",
    ),
    _row(
        "gpt_neox_sequential",
        {**_MHA, "use_parallel_residual": False},
        model_type="gpt_neox",
        layers="gpt_neox.layers",
        norm="gpt_neox.final_layer_norm",
        attention="attention",
    ),
    _row(
        "gptj",
        {**_GPT2, "rotary_dim": 4},
        layers="transformer.h",
        norm="transformer.ln_f",
        attention="attn",
        mid="parallel",
        notes="unembedding has a bias",
    ),
    _row("olmo2", _GQA, **_POST_NORM, notes="norms after attention and FFN, none before"),
    _row("olmoe", {**_GQA, "num_experts": 4, "num_experts_per_tok": 2, "clip_qkv": 2.5}),
    _row(
        "granite",
        {**_GQA, "attention_multiplier": 0.5, "residual_multiplier": 0.6, "embedding_multiplier": 3.0}
        | {"logits_scaling": 1.7},
        ffn_scale="residual_multiplier",
        logit_divisor="logits_scaling",
    ),
    _row(
        "granitemoe",
        {**_GQA, "attention_multiplier": 0.5, "residual_multiplier": 0.6, "embedding_multiplier": 3.0}
        | {"logits_scaling": 1.7, "num_local_experts": 4, "num_experts_per_tok": 2},
        ffn="block_sparse_moe",
        ffn_scale="residual_multiplier",
        logit_divisor="logits_scaling",
    ),
    _row("starcoder2", {**_GQA, "sliding_window": WINDOW}, sliding_layers=(0, 1, 2)),
    _row(
        "cohere",
        {**_GQA, "logit_scale": 0.4, "use_qk_norm": True},
        mid="parallel",
        logit_multiplier="logit_scale",
    ),
    _row(
        "cohere2",
        {**_GQA, "logit_scale": 0.4, "sliding_window": WINDOW, **_types(_SLIDING, _SLIDING, _FULL)},
        mid="parallel",
        logit_multiplier="logit_scale",
        sliding_layers=(0, 1),
        notes="no rotary embedding in the full layer",
    ),
    _row("stablelm", {**_GQA, "use_parallel_residual": False}),
    _row("stablelm_parallel", {**_GQA, "use_parallel_residual": True}, model_type="stablelm", mid="parallel"),
    _row("smollm3", {**_GQA, "no_rope_layers": [1, 0, 1]}),
    _row(
        "glm4",
        {
            **_WIDE,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
        },
        ffn="post_mlp_layernorm",
        notes="extra norms after attention and FFN",
    ),
    _row(
        "opt",
        {**_MHA, "ffn_dim": 48, "word_embed_proj_dim": 32},
        layers="model.decoder.layers",
        norm="model.decoder.final_layer_norm",
        mid="final_layer_norm",
        ffn="fc2",
        notes="the FFN sees rows flattened to (batch × position, hidden)",
    ),
    _row(
        "opt_post_norm",
        {**_MHA, "ffn_dim": 48, "word_embed_proj_dim": 24, "do_layer_norm_before": False},
        model_type="opt",
        layers="model.decoder.layers",
        norm=None,
        mid="fc1",
        ffn=None,
        project_out="model.decoder.project_out",
        notes="as OPT-350m: norms after each block, no final norm, a projection before the unembedding",
    ),
    _row("nemotron", _GQA, notes="norm weight is 1 + w, with bias"),
    _row(
        "exaone4",
        {**_GQA, "sliding_window": WINDOW, **_types(_SLIDING, _SLIDING, _SLIDING, _FULL)},
        **_POST_NORM,
        sliding_layers=(0, 1, 2),
    ),
    _row(
        "lfm2",
        {**_GQA, **_types("conv", _FULL, "conv", _FULL), "block_multiple_of": 16},
        norm="model.embedding_norm",
        mid="ffn_norm",
        ffn="feed_forward",
        attention_layers=(1, 3),
        notes="short convolutions between; the final norm is called embedding_norm",
    ),
    _row(
        "falcon_h1",
        {**_GQA, "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8}
        | {"mamba_chunk_size": 16, "lm_head_multiplier": 0.7, "embedding_multiplier": 2.0}
        | {"attention_out_multiplier": 0.8, "key_multiplier": 0.9},
        norm="model.final_layernorm",
        mid="pre_ff_layernorm",
        ffn="feed_forward",
        logit_multiplier="lm_head_multiplier",
        notes="attention and a recurrence side by side in each layer; the layer returns a tuple",
    ),
    _row(
        "llama4_text",
        {**_WIDE, "intermediate_size_mlp": 48, "num_local_experts": 4, "num_experts_per_tok": 1}
        | {"moe_layers": [1], "attention_chunk_size": WINDOW}
        | _types("chunked_attention", "chunked_attention", _FULL)
        | {"no_rope_layers": [1, 1, 0], "attn_temperature_tuning": True, "floor_scale": 16},
        ffn="feed_forward",
        sliding_layers=(0, 1),
        notes="chunked attention; queries scaled by position in layers without rotary embedding",
    ),
    _row("hunyuan_v1_dense", _WIDE, notes="norms on query and key heads"),
    _row("ernie4_5", _WIDE),
    _row("seed_oss", _WIDE),
    _row(
        "deepseek_v3",
        {**_MHA, "num_key_value_heads": 4, "moe_intermediate_size": 24, "n_routed_experts": 4}
        | {"num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1}
        | {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8}
        | {"v_head_dim": 10},
        notes="latent attention: value heads (10) are not as wide as key heads (8 + 4)",
    ),
    _row("bloom", {**_GPT2, "hidden_size": 32}, refused="computes attention without the interface"),
    _row(
        "mpt",
        {"vocab_size": VOCAB, "d_model": 32, "n_layers": 3, "n_heads": HEADS, "max_seq_len": 256, **_TOKENS},
        refused="computes attention without the interface",
    ),
    _row("falcon", {**_MHA, "num_kv_heads": 2}, refused="computes attention without the interface"),
    _row(
        "mamba",
        {"vocab_size": VOCAB, "hidden_size": 32, "state_size": 8, "num_hidden_layers": 3, **_TOKENS},
        refused="has no attention",
    ),
]
