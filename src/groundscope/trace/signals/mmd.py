"""Squared maximum mean discrepancy between two output distributions, whole or truncated."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from groundscope.trace.signals.forms import MmdForm

# Bytes of gathered embeddings held at once.
_BLOCK_BYTES = 64 << 20


def shift_norm(shift: Tensor, embeddings: Tensor, norms: Tensor) -> Tensor:
    """Half the squared norm of (P - Q) E with unit-norm embeddings E: cosine kernel, whole vocabulary.

    Args:
        shift: (row, word) P - Q; it is overwritten.
        embeddings: (vocabulary, channel) input embeddings.
        norms: (vocabulary,) their norms.

    Returns:
        (row,) in [0, 2].
    """
    # Output rows beyond the embedding matrix (padded vocabularies) have no embedding.
    size = min(shift.shape[-1], len(norms))
    moved = _project(shift[:, :size].div_(norms[:size]), embeddings[:size])
    return moved.square().sum(-1) / 2


def truncated(p: Tensor, q: Tensor, embeddings: Tensor, norms: Tensor, form: MmdForm) -> Tensor:
    """The same over the likeliest tokens of each distribution, which keep their probabilities.

    Under the cosine kernel this is ((sum P - sum Q)² + ||P E - Q E||²) / 2 with unit-norm embeddings E: the first
    term, which vanishes over the whole vocabulary, sets distributions of different peakedness apart.

    Args:
        p: (row, word) probabilities under the passages.
        q: (row, word) probabilities under a random document.
        embeddings: (vocabulary, channel) input embeddings.
        norms: (vocabulary,) their norms.
        form: Kernel, its width, and how many tokens of each.

    Returns:
        (row,) in [0, 2].
    """
    size = min(p.shape[-1], len(norms))
    k = min(form.top_k or size, size)
    width = k * embeddings.shape[1] + 4 * k * (form.kernel == "rbf")
    parts = []
    for rows in _row_blocks(len(p), 2 * width * 8):
        p_top, p_ids = p[rows, :size].topk(k, dim=-1)  # (row, k)
        q_top, q_ids = q[rows, :size].topk(k, dim=-1)
        if form.kernel == "cosine":
            moved = _mean(p_top, p_ids, embeddings, norms) - _mean(q_top, q_ids, embeddings, norms)
            mass = p_top.sum(-1) - q_top.sum(-1)
            parts.append((mass.square() + moved.square().sum(-1)) / 2)
        else:
            weights = torch.cat([p_top, -q_top], dim=-1)
            parts.append(_rbf(weights, embeddings[torch.cat([p_ids, q_ids], dim=-1)], form.sigma))
    return torch.cat(parts)


def _mean(weights: Tensor, ids: Tensor, embeddings: Tensor, norms: Tensor) -> Tensor:
    """Weighted sum of unit-norm embeddings, (row, channel)."""
    scaled = (weights / norms[ids]).unsqueeze(1)  # (row, 1, k)
    return (scaled @ embeddings[ids].to(weights.dtype)).squeeze(1)


def _rbf(weights: Tensor, points: Tensor, sigma: float) -> Tensor:
    """The quadratic form of exp(-distance² / 2 sigma²), (row,), from (row, 2k) weights and (row, 2k, channel)."""
    # Distances of like embeddings are small differences of large numbers; MPS has no double precision.
    exact = torch.float32 if points.device.type == "mps" else torch.float64
    points = points.to(exact)
    squares = points.square().sum(-1)
    distances = squares[:, :, None] + squares[:, None] - 2 * points @ points.mT  # (row, 2k, 2k)
    kernel = distances.clamp_(min=0).mul_(-1 / (2 * sigma**2)).exp_()
    signed = weights.to(exact)
    form = (signed.unsqueeze(1) @ kernel @ signed.unsqueeze(-1)).flatten()
    return form.clamp_(min=0).to(weights.dtype)


def _project(weights: Tensor, embeddings: Tensor) -> Tensor:
    """(row, vocabulary) x (vocabulary, channel) in the precision of the weights, whatever the embeddings' is."""
    if embeddings.dtype == weights.dtype:
        return weights @ embeddings
    out = weights.new_zeros(weights.shape[0], embeddings.shape[1])
    for start in range(0, embeddings.shape[0], 16384):
        part = slice(start, start + 16384)
        out.addmm_(weights[:, part], embeddings[part].to(weights.dtype))
    return out


def _row_blocks(rows: int, row_bytes: int) -> Iterator[slice]:
    step = max(1, _BLOCK_BYTES // row_bytes)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
