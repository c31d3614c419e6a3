"""Candidates that share the keys and values of what was read before them.

Copying a long prompt's cache for every candidate costs more memory and time than writing with it. A
:class:`PrefixedLayer` keeps the shared part once and per candidate only what came after; the attention function of
:mod:`groundscope.lm.anatomy.interface` reads both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

_NAME = "groundscope_prefix"


class PrefixedLayer(DynamicLayer):  # type: ignore[misc]
    """One layer's cache of candidates behind a shared prefix; it needs groundscope's attention function.

    Args:
        keys: (1, key head, position, channel) shared keys; they are never written to.
        values: (1, key head, position, channel) shared values.
        copies: How many candidates.
    """

    def __init__(self, keys: Tensor, values: Tensor, copies: int) -> None:
        super().__init__()
        self.lazy_initialization(keys, values)
        self.prefix_keys, self.prefix_values = keys, values
        self.keys = keys.new_empty(copies, keys.shape[1], 0, keys.shape[3])
        self.values = values.new_empty(copies, values.shape[1], 0, values.shape[3])

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Add keys and values; returns the candidates' own ones, which carry the shared ones with them."""
        self.keys = torch.cat([self.keys, key_states], dim=-2)
        self.values = torch.cat([self.values, value_states], dim=-2)
        keys = self.keys[:]
        setattr(keys, _NAME, (self.prefix_keys, self.prefix_values))
        return keys, self.values

    def get_seq_length(self) -> int:
        """Return the positions read, shared ones included."""
        return int(self.prefix_keys.shape[-2] + self.keys.shape[-2])

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Put the candidates in another order, which may leave some out."""
        self.keys = self.keys.index_select(0, beam_idx.to(self.keys.device))
        self.values = self.values.index_select(0, beam_idx.to(self.values.device))

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last ``-tokens_to_remove`` positions, shared ones if need be."""
        length = self.get_seq_length() + tokens_to_remove
        shared = self.prefix_keys.shape[-2]
        self.prefix_keys, self.prefix_values = self.prefix_keys[..., :length, :], self.prefix_values[..., :length, :]
        own = max(length - shared, 0)
        self.keys, self.values = self.keys[..., :own, :], self.values[..., :own, :]

    def whole(self, candidate: int) -> tuple[Tensor, Tensor]:
        """Return all keys and values of one candidate, (1, key head, position, channel)."""
        one = slice(candidate, candidate + 1)
        return (
            torch.cat([self.prefix_keys, self.keys[one]], dim=-2),
            torch.cat([self.prefix_values, self.values[one]], dim=-2),
        )


def behind(layer: Any, sequence: int, copies: int) -> PrefixedLayer | None:
    """Return a layer for copies of one sequence that shares its keys and values; ``None`` where it cannot."""
    if isinstance(layer, PrefixedLayer):
        return PrefixedLayer(*layer.whole(sequence), copies)
    if type(layer) is not DynamicLayer or not layer.is_initialized:
        # Windows hold few keys, and recurrent states are small: those are copied.
        return None
    one = slice(sequence, sequence + 1)
    return PrefixedLayer(layer.keys[one], layer.values[one], copies)


def prefix_of(key: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the shared keys and values that go before these keys; ``None`` for ordinary ones."""
    found: tuple[Tensor, Tensor] | None = getattr(key, _NAME, None)
    return found
