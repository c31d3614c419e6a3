"""Tiny random models of many decoder families, with what the naive reference must know about each.

The anatomy here was written down by reading each family's forward pass. It is deliberately not derived at
run time: the fast path finds norms, residuals and unembeddings by its own means and is compared with this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from reference.family_table import HEADS, TABLE


@dataclass(frozen=True)
class Family:
    """One architecture: how to build a tiny one and where things are in it.

    Attributes:
        name: Name of the family; a variant of a family carries a suffix.
        model_type: `model_type` of its transformers configuration.
        config: Keyword arguments of the configuration.
        layers: Path of the list of decoder layers.
        norm: Path of the final norm, or None when the family has none.
        attention: Name of the attention module within a layer.
        mid: Name of the submodule of a layer whose input is the residual between attention and FFN, or
            "parallel" where both read the same input: mid is then layer input + attention output.
        ffn: Name of the submodule whose output is what the FFN adds to the residual, or None where the
            layer does more after the FFN.
        ffn_scale: Configuration attribute that multiplies the FFN's contribution.
        logit_multiplier, logit_divisor, logit_softcap: Configuration attributes applied to the logits.
        project_out: Path of a projection between final norm and unembedding.
        attention_layers: Indices of the layers that have attention; None for all.
        sliding_layers: Indices of the layers with a sliding (or chunked) window, of `WINDOW` keys.
        sinks: Whether a learnt sink takes a share of the attention, so that weights over keys sum to < 1.
        softcap: Whether attention scores are soft-capped.
        refused: Why attention signals are not available, or an empty string.
        notes: What is odd about the family.
    """

    name: str
    model_type: str
    config: dict[str, Any]
    layers: str = "model.layers"
    norm: str | None = "model.norm"
    attention: str = "self_attn"
    mid: str = "post_attention_layernorm"
    ffn: str | None = "mlp"
    ffn_scale: str | None = None
    logit_multiplier: str | None = None
    logit_divisor: str | None = None
    logit_softcap: str | None = None
    project_out: str | None = None
    attention_layers: tuple[int, ...] | None = None
    sliding_layers: tuple[int, ...] = ()
    sinks: bool = False
    softcap: bool = False
    refused: str = ""
    notes: str = ""

    @property
    def parallel(self) -> bool:
        return self.mid == "parallel"

    @property
    def has_sliding(self) -> bool:
        return bool(self.sliding_layers)

    @property
    def has_sinks(self) -> bool:
        return self.sinks

    @property
    def hybrid(self) -> bool:
        return self.attention_layers is not None

    @property
    def gqa(self) -> bool:
        return self.config.get("num_key_value_heads", HEADS) != HEADS

    @property
    def n_layers(self) -> int:
        return next(self.config[key] for key in ("num_hidden_layers", "n_layer", "n_layers") if key in self.config)

    @property
    def layers_with_attention(self) -> tuple[int, ...]:
        return tuple(range(self.n_layers)) if self.attention_layers is None else self.attention_layers


FAMILIES: dict[str, Family] = {row["name"]: Family(**row) for row in TABLE}
SUPPORTED: tuple[str, ...] = tuple(name for name, family in FAMILIES.items() if not family.refused)
REFUSED: tuple[str, ...] = tuple(name for name, family in FAMILIES.items() if family.refused)


def build(name: str, seed: int = 0, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """Builds a tiny model in evaluation mode whose weights make every signal informative.

    Default initialisation gives nearly uniform attention, norms that are all one (which hides a norm applied
    twice) and zero biases. Here projections keep the scale of their input, norm weights scatter around their
    neutral value and biases are not zero.

    Args:
        name: A key of `FAMILIES`.
        seed: Seed of the weights.
        dtype: Type of the weights; they are drawn in float32 and then cast.

    Returns:
        The model, with SDPA attention where the family has it (the library's default).
    """
    family = FAMILIES[name]
    config = AutoConfig.for_model(family.model_type, **family.config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config)
        _randomise(model, torch.Generator().manual_seed(seed + 1))
    if model._can_set_experts_implementation():
        model.set_experts_implementation("eager")  # the grouped kernels have no float64
    return model.to(dtype).eval()


@torch.no_grad()
def _randomise(model: PreTrainedModel, generator: torch.Generator) -> None:
    embeddings = {id(model.get_input_embeddings().weight), id(model.get_output_embeddings().weight)}
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=generator)
        if any(part in name for part in ("A_log", "dt_bias", "conv1d", ".D")):
            continue  # a recurrence is stable only within narrow bounds: keep the library's values
        if id(weight) in embeddings:
            weight.copy_(noise * 2.0 / math.sqrt(weight.shape[-1]))
        elif weight.ndim == 1:
            neutral = weight if bool((weight == weight[0]).all()) else torch.zeros_like(weight)
            if type(_owner(model, name)).__name__ == "NemotronLayerNorm1P":
                neutral = torch.zeros_like(weight)  # multiplies by 1 + w, though the library starts it at 1
            weight.copy_(neutral + 0.25 * noise)
        elif "norm" in name:  # a separate scale per head
            weight.copy_(1 + 0.25 * noise)
        else:
            weight.copy_(noise * 1.2 / math.sqrt(_fan_in(model, name, weight)))
    for name, buffer in model.named_buffers():
        if name.endswith("layer_scalar"):
            buffer.copy_(0.75 + 0.5 * torch.rand(buffer.shape, generator=generator))
        elif name.endswith("e_score_correction_bias"):
            buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))


def _owner(model: PreTrainedModel, name: str) -> nn.Module:
    return model.get_submodule(name.rpartition(".")[0])


def _fan_in(model: PreTrainedModel, name: str, weight: torch.Tensor) -> int:
    transposed = type(_owner(model, name)).__name__ == "Conv1D"  # GPT-2 stores its projections as (in, out)
    return weight.shape[0] if transposed else weight.shape[-1]


def submodule(model: nn.Module, path: str | None) -> nn.Module:
    """Returns the submodule at `path`, or the identity for None."""
    return nn.Identity() if path is None else model.get_submodule(path)
