"""From a layer's states to logits, without rounding in half precision where signals are read from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

# Elements of the output matrix that a processor multiplies with at once: all rows go through what stays in its cache.
_BLOCK = 600_000
# With fewer rows than these it is read from memory once anyway.
_MANY_ROWS = 16


@dataclass(frozen=True)
class Unembedding:
    """Hidden state of a layer to logits: final norm, output matrix, scale, soft-cap.

    Attributes:
        norms: Applied in order to a layer's output; gives what the output matrix reads.
        head: The output matrix.
        scale: Factor on the logits.
        softcap: Logits become ``softcap * tanh(logits / softcap)``; ``None`` for none.
    """

    norms: tuple[nn.Module, ...]
    head: nn.Module
    scale: float = 1.0
    softcap: float | None = None

    def normed(self, hidden: Tensor) -> Tensor:
        """Apply the final norm exactly once. Shape is kept, except where the last module projects."""
        for norm in self.norms:
            hidden = norm(hidden)
        return hidden

    @torch.no_grad()
    def logits(self, normed: Tensor, memory: Tensor | None = None) -> Tensor:
        """Return float32 logits (float64 for a float64 model), (..., vocabulary), of normed states.

        Of a model in half precision the products are not rounded to its precision: a logit of 20 would be off by up
        to 0.06 in bfloat16, as much as what divergences of neighbouring layers are made of. No gradient passes.

        Args:
            normed: (..., channel).
            memory: A tensor of the logits' shape and type that they may lie in; it is then overwritten.
        """
        return self._finished(_unrounded(self.head, normed, memory))

    def own_logits(self, normed: Tensor) -> Tensor:
        """Return the same as the model itself rounds them, from which it would draw the next token."""
        return self._finished(self.head(normed))

    def _finished(self, logits: Tensor) -> Tensor:
        if logits.dtype != torch.float64:
            logits = logits.float()
        if self.scale != 1.0:
            logits = logits * self.scale
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        return logits


def _unrounded(head: nn.Module, normed: Tensor, memory: Tensor | None) -> Tensor:
    """What the output matrix returns, in float32 if that takes nothing but a plain matrix in half precision."""
    if not _is_plain(head, normed):
        found: Tensor = head(normed)
        return found
    weight: Tensor = head.weight  # type: ignore[assignment]
    rows = normed.reshape(-1, normed.shape[-1])
    out = None if memory is None else memory.view(-1, len(weight))
    exact = weight.dtype in (torch.float32, torch.float64)
    if rows.device.type == "cpu" and (not exact or len(rows) >= _MANY_ROWS):
        logits = _in_blocks(rows if exact else rows.float(), weight, out)
    elif exact:
        logits = torch.mm(rows, weight.t(), out=out)
    elif _accumulates(rows.device, rows.dtype):
        logits = torch.mm(rows, weight.t(), out_dtype=torch.float32)
    else:
        logits = head(rows)
    return logits.view(*normed.shape[:-1], len(weight))


def _is_plain(head: nn.Module, normed: Tensor) -> bool:
    """Whether nothing but ``normed @ weight.T`` happens in it: no bias, hook, quantisation, shards or other device."""
    if type(head) is not nn.Linear or head._parameters["bias"] is not None:
        return False
    if head._forward_hooks or head._forward_pre_hooks:
        return False
    weight = head.weight
    return (
        type(weight) in (nn.Parameter, Tensor)
        and weight.dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16)
        and (weight.dtype, weight.device) == (normed.dtype, normed.device)
    )


def _in_blocks(rows: Tensor, weight: Tensor, out: Tensor | None) -> Tensor:
    logits = rows.new_empty(len(rows), len(weight)) if out is None else out
    step = max(1, _BLOCK // weight.shape[1])
    for start in range(0, len(weight), step):
        words = slice(start, start + step)
        torch.mm(rows, weight[words].to(rows.dtype).t(), out=logits[:, words])
    return logits


@cache
def _accumulates(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this torch returns float32 products of half-precision matrices on this device."""
    try:
        one = torch.ones(16, 16, dtype=dtype, device=device)
        return torch.mm(one, one, out_dtype=torch.float32).dtype == torch.float32
    except (RuntimeError, TypeError):
        return False
