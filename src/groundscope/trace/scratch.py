"""Memory that is used again: touching fresh pages costs a processor more than the arithmetic done in them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


class Scratch:
    """Named buffers that outlive a block; what a name held before is overwritten."""

    def __init__(self) -> None:
        self._flat: dict[str, Tensor] = {}

    def take(self, name: str, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return an uninitialised tensor, on the memory that the name had before where that is large enough."""
        size = math.prod(shape)
        flat = self._flat.get(name)
        if flat is None or flat.numel() < size or flat.dtype != dtype or flat.device != device:
            flat = self._flat[name] = torch.empty(size, dtype=dtype, device=device)
        return flat[:size].view(*shape)

    def like(self, name: str, other: Tensor) -> Tensor:
        """Return an uninitialised tensor of another one's shape, type and device."""
        return self.take(name, other.shape, other.dtype, other.device)
