"""One naive pass: the Hugging Face model in float64 with eager attention, everything kept."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedModel

from reference.families import Family, submodule
from reference.signals import Array


class OnlyFloat64(TorchDispatchMode):
    """Turns the casts to float32 that models hard-code (softmax, norms, rotary angles) into float64."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # In inference mode casts arrive whole, with their type among the arguments.
        args = tuple(torch.float64 if value is torch.float32 else value for value in args)
        kwargs = {key: torch.float64 if value is torch.float32 else value for key, value in (kwargs or {}).items()}
        return func(*args, **kwargs)


@dataclass(frozen=True)
class Pass:
    """What one prompt + response yields.

    Attributes:
        attentions: (head, row, key) weights per layer that has attention, in order of the layers.
        mid: (layer, position, hidden) residual between attention and FFN.
        post: (layer, position, hidden) output of each layer, the last one not normed.
        states: (position, hidden) what the unembedding reads: the last layer's output, final-normed, and
            projected where the family does that.
        logits: (position, word) as the model itself yields them.
    """

    attentions: list[Array]
    mid: Array
    post: Array
    states: Array
    logits: Array


def in_float64(model: PreTrainedModel) -> PreTrainedModel:
    """Returns a float64 copy with eager attention; the model itself stays as it is."""
    twin = copy.deepcopy(model).double().eval()
    twin.set_attn_implementation("eager")
    return twin


def lens(model: PreTrainedModel, family: Family, states: Array) -> Array:
    """Logits of intermediate states: final norm, unembedding, and what the family does to its logits."""
    with torch.no_grad(), OnlyFloat64():
        normed = submodule(model, family.norm)(torch.from_numpy(states))
        logits = model.get_output_embeddings()(submodule(model, family.project_out)(normed))
        if family.logit_multiplier:
            logits = logits * getattr(model.config, family.logit_multiplier)
        if family.logit_divisor:
            logits = logits / getattr(model.config, family.logit_divisor)
        if family.logit_softcap and (cap := getattr(model.config, family.logit_softcap)) is not None:
            logits = torch.tanh(logits / cap) * cap
    return logits.numpy()


def read(model: PreTrainedModel, family: Family, ids: list[int]) -> Pass:
    """Runs `ids` through a model made by `in_float64`."""
    layers = list(submodule(model, family.layers))
    inputs: dict[int, torch.Tensor] = {}
    outputs: dict[int, torch.Tensor] = {}
    mids: dict[int, torch.Tensor] = {}
    branches: dict[int, torch.Tensor] = {}
    hooks = []

    def keep(store: dict[int, torch.Tensor], index: int, value: Any) -> None:
        tensor = value[0] if isinstance(value, tuple) else value
        store[index] = tensor.detach().clone().reshape(len(ids), -1)  # some layers work in place

    def keep_input(store: dict[int, torch.Tensor], index: int) -> Any:
        return lambda module, args, kwargs: keep(store, index, args[0] if args else kwargs["hidden_states"])

    def keep_output(store: dict[int, torch.Tensor], index: int) -> Any:
        return lambda module, args, output: keep(store, index, output)

    for index, layer in enumerate(layers):
        hooks.append(layer.register_forward_pre_hook(keep_input(inputs, index), with_kwargs=True))
        hooks.append(layer.register_forward_hook(keep_output(outputs, index)))
        if family.parallel:
            attention = layer.get_submodule(family.attention)
            hooks.append(attention.register_forward_hook(keep_output(branches, index)))
        else:
            ffn = layer.get_submodule(family.mid)
            hooks.append(ffn.register_forward_pre_hook(keep_input(mids, index), with_kwargs=True))
    try:
        with torch.no_grad(), OnlyFloat64():
            out = model(input_ids=torch.tensor([ids]), output_attentions=True, use_cache=False)
            if family.parallel:
                mids = {index: inputs[index] + branches[index] for index in inputs}
            post = torch.stack([outputs[index] for index in range(len(layers))])
            mid = torch.stack([mids[index] for index in range(len(layers))])
            states = submodule(model, family.project_out)(submodule(model, family.norm)(post[-1]))
    finally:
        for hook in hooks:
            hook.remove()
    assert out.logits.dtype == torch.float64
    assert len(out.attentions) == sum(hasattr(layer, family.attention) for layer in layers)
    return Pass(
        attentions=[layer[0].numpy() for layer in out.attentions],
        mid=mid.numpy(),
        post=post.numpy(),
        states=states.numpy(),
        logits=out.logits[0].numpy(),
    )
