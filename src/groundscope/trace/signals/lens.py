"""Signals from the residual stream, read through the model's own final norm and output matrix."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from groundscope.lm.blocks import Unembedding
from groundscope.trace.signals.output import cache_blocks, entropy, log_softmax_, row_blocks, vocabulary_of

# A layer that is sure beyond this weighs so much that the rate is 0 anyway.
_LEAST_ENTROPY = 1e-30


def lens_signals(
    unembedding: Unembedding,
    mids: Sequence[Tensor],
    outs: Sequence[Tensor],
    last_normed: Tensor,
    targets: Tensor,
    wanted: frozenset[str],
) -> dict[str, Tensor]:
    """Signals of the logit lens, layer by layer; no more than two layers' distributions are held.

    Args:
        unembedding: The model's final norm and output matrix.
        mids: Per layer (token, channel) residual before the feed-forward block; may be empty if
            ``parametric_knowledge_score`` is not wanted.
        outs: Per layer (token, channel) residual after it; the last entry is not read.
        last_normed: (token, channel) the last layer's states as the model normed them.
        targets: (token,) response ids.
        wanted: Names of lens signals.

    Returns:
        Per name a (token, layer) or (token,) tensor.
    """
    rate = bool(wanted & {"information_processing_rate", "information_processing_rate_calibrated"})
    blocks: dict[str, list[Tensor]] = {}
    step = vocabulary_of(unembedding, last_normed) * (3 if rate else 2)
    for rows in row_blocks(len(last_normed), step):
        for name, values in _block(unembedding, mids, outs, last_normed, targets, wanted, rate, rows).items():
            blocks.setdefault(name, []).append(values)
    return {name: torch.cat(parts) for name, parts in blocks.items()}


def _block(
    unembedding: Unembedding,
    mids: Sequence[Tensor],
    outs: Sequence[Tensor],
    last_normed: Tensor,
    targets: Tensor,
    wanted: frozenset[str],
    rate: bool,
    rows: slice,
) -> dict[str, Tensor]:
    depth = len(outs)
    final = unembedding.logits(last_normed[rows])  # (token, vocabulary)
    # Before normalising, which rounds near ties away.
    predicted = final.argmax(-1)
    log_softmax_(final)
    top = final.gather(-1, predicted[:, None]).squeeze(-1)
    entropies, knowledge = [], []
    late = torch.zeros_like(top)
    sure = torch.zeros_like(top)
    for layer in range(depth):
        last = layer == depth - 1
        needed = last or rate or "lens_entropy" in wanted or "parametric_knowledge_score" in wanted
        if not needed:
            continue
        logs = final if last else log_softmax_(unembedding.logits(unembedding.normed(outs[layer][rows])))
        if "parametric_knowledge_score" in wanted:
            before = log_softmax_(unembedding.logits(unembedding.normed(mids[layer][rows])))
            knowledge.append(jensen_shannon(before, logs))
        if "lens_entropy" in wanted or (rate and not last):
            spread = entropy(logs)
            entropies.append(spread)
        if rate and not last:
            reached = (logs.gather(-1, predicted[:, None]).squeeze(-1) - top).exp().clamp(max=1)
            late += (layer + 1) * (1 - reached)
            sure += (layer + 1) / spread.clamp(min=_LEAST_ENTROPY)
    out: dict[str, Tensor] = {}
    if "lens_entropy" in wanted:
        out["lens_entropy"] = torch.stack(entropies, dim=-1)
    if "parametric_knowledge_score" in wanted:
        out["parametric_knowledge_score"] = torch.stack(knowledge, dim=-1)
    if rate:
        # A model of one layer has no layer before its last; nothing is processed late.
        ratio = late / sure if depth > 1 else late
        if "information_processing_rate" in wanted:
            out["information_processing_rate"] = ratio
        if "information_processing_rate_calibrated" in wanted:
            chosen = final.gather(-1, targets[rows, None]).squeeze(-1)
            out["information_processing_rate_calibrated"] = ratio * (chosen - top).exp()
    return out


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """Jensen-Shannon divergence in nats of two sets of log probabilities, (row, vocabulary) -> (row,), in [0, ln 2].

    With g = |log p - log q| and w = 1 - exp(-g), each element adds (p+q)/2 times
    -log(1 - w/2) - g (1-w)/(2-w) >= 0, which neither cancels where p and q are close nor overflows where
    one of them vanishes.
    """
    return torch.cat([_divergence(a, b) for a, b in zip(cache_blocks(p), cache_blocks(q), strict=True)])


def _divergence(p: Tensor, q: Tensor) -> Tensor:
    gap = (p - q).abs_()
    w = torch.expm1(-gap).neg_()
    share = torch.log1p(w * -0.5).neg_()
    share.sub_(gap.mul_(1 - w).div_(w.neg_().add_(2)))
    share.mul_(p.exp().add_(q.exp()))
    return share.sum(-1).div_(2).clamp_(min=0)
