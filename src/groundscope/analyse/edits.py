"""Reversible changes to a model while it reads: heads that attend at random, feed-forward blocks made louder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from groundscope.errors import InputError, check_choice, is_finite
from groundscope.lm.anatomy.interface import AttentionCall, editing, hide
from groundscope.lm.feed_forward import check_layers, editing_feed_forward
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
    check_layers(lm, layers)
    if not is_finite(factor):
        raise InputError(
            f"The 'factor' parameter of amplified_feed_forward must be a finite number. Got {factor!r} instead."
        )

    def louder(_layer: int, hidden: Tensor, added: Tensor) -> Tensor:
        changed = hidden.clone()
        changed[..., first_row:, :] += (float(factor) - 1) * added[..., first_row:, :]
        return changed

    with editing_feed_forward(lm, layers if factor != 1 else (), louder):
        yield


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
