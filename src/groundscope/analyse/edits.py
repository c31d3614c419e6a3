"""Reversible changes to a model while it reads: heads that attend at random, feed-forward blocks made louder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from groundscope.errors import InputError, check_choice, is_finite
from groundscope.lm.blocks import first_tensor, tensor_of
from groundscope.lm.interface import AttentionCall, editing, hide
from groundscope.lm.language_model import LanguageModel

Rows = Literal["response", "all"]
Place = tuple[int, int]


@contextmanager
def random_attention(lm: LanguageModel, heads: Sequence[Place], *, first_row: int = 0, seed: int = 0) -> Iterator[None]:
    """Let some heads attend at random: the softmax of N(0, 1) noise over the keys that each row may see.

    Values are read as they are, and the other heads attend as ever. The model is as it was once the block is left,
    also through an error. Passes inside the block must be of one sequence without padding.

    Args:
        lm: The model.
        heads: (layer, head) pairs, 0-based; none changes nothing.
        first_row: First position whose attention is replaced; those before keep theirs.
        seed: Of the noise, which depends on layer and head too and on nothing else.

    Raises:
        InputError: If the model has no such head.
        UnsupportedModelError: If its attention cannot be read.
    """
    lm.anatomy.require("attention", lm.name)
    known = set(lm.anatomy.attention_layers)
    for layer, head in heads:
        if layer not in known or not 0 <= head < lm.anatomy.heads:
            raise InputError(
                f"{lm.name} has heads 0 to {lm.anatomy.heads - 1} in the layers {sorted(known)}. "
                f"Got layer {layer}, head {head}."
            )
    with ExitStack() as stack:
        if heads:
            stack.enter_context(lm.tap.open())
            stack.enter_context(editing(_Noise(lm, heads, first_row, seed)))
        yield


@contextmanager
def amplified_feed_forward(
    lm: LanguageModel, layers: Sequence[int], factor: float = 10.0, *, first_row: int = 0
) -> Iterator[None]:
    """Multiply what the feed-forward blocks of some layers add to the residual stream.

    The model is as it was once the block is left, also through an error.

    Args:
        lm: The model.
        layers: 0-based; none changes nothing.
        factor: 1 changes nothing; ReDeEP's paper takes 10.
        first_row: First position that is changed.

    Raises:
        InputError: If the model has no such layer, or the factor is not a finite number.
        UnsupportedModelError: If its feed-forward blocks cannot be found.
    """
    lm.anatomy.require("lens", lm.name)
    if not is_finite(factor):
        raise InputError(
            f"The 'factor' parameter of amplified_feed_forward must be a finite number. Got {factor!r} instead."
        )
    count = len(lm.anatomy.layers)
    for layer in layers:
        if not 0 <= layer < count:
            raise InputError(f"{lm.name} has the layers 0 to {count - 1}. Got layer {layer}.")
    with ExitStack() as stack:
        if factor != 1:
            for layer in dict.fromkeys(layers):
                _Louder(float(factor), first_row).install(stack, lm, layer)
        yield


# Hooks sit on the model, which other threads may use at the same time: they act where they were set only.
_ACTIVE: ContextVar[frozenset[_Louder]] = ContextVar("groundscope_louder_layers", default=frozenset())


def first_response_row(rows: Rows, prompt: int) -> int:
    """Return the first row to change: that which predicts the first response token, or the very first."""
    check_choice("intervene", "rows", rows, ("response", "all"))
    return prompt - 1 if rows == "response" else 0


def noise(seed: int, layer: int, head: int, rows: int, keys: int) -> Tensor:
    """Return the (row, key) N(0, 1) numbers of one head, float32, the same on every device."""
    digest = hashlib.sha256(f"{seed} {layer} {head}".encode()).digest()
    generator = np.random.default_rng(np.frombuffer(digest[:16], dtype=np.uint32))
    return torch.from_numpy(generator.standard_normal((rows, keys), dtype=np.float32))


class _Noise:
    """Edits the output of attention layers; passes of one sequence."""

    def __init__(self, lm: LanguageModel, heads: Sequence[Place], first_row: int, seed: int) -> None:
        self._layers = lm.anatomy.attention
        self._heads: dict[int, list[int]] = {}
        for layer, head in dict.fromkeys(heads):
            self._heads.setdefault(layer, []).append(head)
        self._first = first_row
        self._seed = seed

    def edit(self, call: AttentionCall, value: Tensor, output: Tensor) -> Tensor:
        layer = self._layers.get(call.module)
        chosen = self._heads.get(layer, []) if layer is not None else []
        if layer is None or not chosen:
            return output
        batch, count, length, _ = call.query.shape
        if batch != 1:
            raise InputError(f"Heads are changed one sequence at a time. Got a batch of {batch}; use batch_size=1.")
        keys = call.key.shape[2]
        rows, seen = slice(min(self._first, length), length), slice(0, keys)
        if rows.start == length:
            return output
        dtype = torch.float64 if call.query.dtype == torch.float64 else torch.float32
        # The layer's mask may differ by head; it is applied to all of them, and the chosen ones are kept.
        logits = torch.zeros(count, length - rows.start, keys, dtype=dtype, device=output.device)
        for head in chosen:
            logits[head] = noise(self._seed, layer, head, length, keys)[rows].to(logits)
        weights = torch.softmax(hide(logits, call, 0, rows, seen)[chosen], dim=-1)  # (chosen, row, key)
        group = count // value.shape[1]
        values = value[0, [head // group for head in chosen]].to(dtype)  # (chosen, key, channel)
        changed = output.clone()
        changed[0, rows, chosen] = torch.bmm(weights, values).transpose(0, 1).to(output.dtype)
        return changed


class _Louder:
    """Hooks of one layer: its output becomes mid + factor * (output - mid)."""

    def __init__(self, factor: float, first_row: int) -> None:
        self._factor = factor
        self._first = first_row
        self._mid: Tensor | None = None

    def install(self, stack: ExitStack, lm: LanguageModel, layer: int) -> None:
        stack.callback(_ACTIVE.reset, _ACTIVE.set(_ACTIVE.get() | {self}))
        mid = lm.anatomy.mids[layer]
        if mid.reader is not None:
            stack.callback(mid.reader.register_forward_pre_hook(self._on_mid, with_kwargs=True).remove)
            stack.callback(lm.anatomy.layers[layer].register_forward_hook(self._on_out).remove)
        elif mid.feed_forward is not None:
            stack.callback(mid.feed_forward.register_forward_hook(self._on_branch).remove)

    def _on_mid(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        hidden = first_tensor(args, kwargs)
        if self in _ACTIVE.get():
            self._mid = None if hidden is None else hidden.clone()

    def _on_out(self, _module: nn.Module, _args: tuple[Any, ...], output: Any) -> Any:
        hidden, mid = tensor_of(output), self._mid
        if hidden is None or mid is None or self not in _ACTIVE.get():
            return output
        self._mid = None
        added = (self._factor - 1) * (hidden - mid.view_as(hidden))
        return _replaced(output, self._changed(hidden, added))

    def _on_branch(self, _module: nn.Module, _args: tuple[Any, ...], output: Any) -> Any:
        branch = tensor_of(output)
        if branch is None or self not in _ACTIVE.get():
            return output
        return _replaced(output, self._changed(branch, (self._factor - 1) * branch))

    def _changed(self, hidden: Tensor, added: Tensor) -> Tensor:
        changed = hidden.clone()
        changed[..., self._first :, :] += added[..., self._first :, :]
        return changed


def _replaced(output: Any, hidden: Tensor) -> Any:
    """Put hidden states where :func:`groundscope.lm.blocks.tensor_of` finds them."""
    if isinstance(output, Tensor):
        return hidden
    if isinstance(output, (tuple, list)):
        return type(output)([hidden, *output[1:]])
    output.last_hidden_state = hidden
    return output
