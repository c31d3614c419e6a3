"""Signals from the residual stream, read through the model's own final norm and output matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import torch
from torch import Tensor

from groundscope.lm.anatomy.unembedding import Unembedding
from groundscope.trace.divergence import divergence
from groundscope.trace.scratch import Scratch
from groundscope.trace.signals.output import cache_blocks, entropy, log_softmax_, row_blocks, vocabulary_of

# A layer that is sure beyond this weighs so much that the rate is 0 anyway.
_LEAST_ENTROPY = 1e-30


@dataclass(frozen=True)
class _Reader:
    """Reads states through the output matrix, into memory that is used again."""

    unembedding: Unembedding
    vocabulary: int
    scratch: Scratch = field(default_factory=Scratch)

    def logits(self, normed: Tensor, name: str) -> Tensor:
        """Logits of (row, channel) states; what was read under the same name before is overwritten."""
        if normed.device.type != "cpu":  # allocators of other devices use memory again by themselves
            return self.unembedding.logits(normed)
        exact = torch.float64 if normed.dtype == torch.float64 else torch.float32
        memory = self.scratch.take(name, (len(normed), self.vocabulary), exact, normed.device)
        return self.unembedding.logits(normed, memory)

    def distributions(self, states: Sequence[Tensor], rows: slice, name: str) -> Iterator[Tensor]:
        """Log probabilities of some rows, (row, vocabulary), layer by layer, each gone when the next one is asked for.

        Of few rows several layers are read at once: going through the output matrix costs more than the arithmetic.
        """
        count = rows.stop - rows.start
        room = next(row_blocks(1 << 30, 3 * self.vocabulary))
        together = max(1, room.stop // count)
        for start in range(0, len(states), together):
            part = torch.cat([state[rows] for state in states[start : start + together]])
            logits = self.logits(self.unembedding.normed(part), name)
            yield from log_softmax_(logits).split(count)  # type: ignore[no-untyped-call]


def lens_signals(
    unembedding: Unembedding,
    mids: Sequence[Tensor],
    outs: Sequence[Tensor],
    last_normed: Tensor,
    targets: Tensor,
    wanted: frozenset[str],
) -> dict[str, Tensor]:
    """Signals of the logit lens, layer by layer; no more distributions are held than a block of rows allows.

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
    reader = _Reader(unembedding, vocabulary_of(unembedding, last_normed))
    for rows in row_blocks(len(last_normed), reader.vocabulary * (3 if rate else 2)):
        for name, values in _block(reader, mids, outs, last_normed, targets, wanted, rate, rows).items():
            blocks.setdefault(name, []).append(values)
    return {name: torch.cat(parts) for name, parts in blocks.items()}


def _block(
    reader: _Reader,
    mids: Sequence[Tensor],
    outs: Sequence[Tensor],
    last_normed: Tensor,
    targets: Tensor,
    wanted: frozenset[str],
    rate: bool,
    rows: slice,
) -> dict[str, Tensor]:
    depth = len(outs)
    final = reader.logits(last_normed[rows], "final")  # (token, vocabulary)
    # Before normalising, which rounds near ties away.
    predicted = final.argmax(-1)
    log_softmax_(final)
    top = final.gather(-1, predicted[:, None]).squeeze(-1)
    entropies, knowledge = [], []
    late = torch.zeros_like(top)
    sure = torch.zeros_like(top)
    after = chain(reader.distributions(outs[:-1], rows, "after"), [final])
    before = reader.distributions(mids, rows, "before")
    for layer, logs in enumerate(after):
        last = layer == depth - 1
        if "parametric_knowledge_score" in wanted:
            knowledge.append(jensen_shannon(next(before), logs))
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
    """Jensen-Shannon divergence in nats of two sets of log probabilities, (row, vocabulary) -> (row,), in [0, ln 2]."""
    scratch = Scratch()
    parts = [
        divergence(torch.exp(a, out=scratch.like("first", a)), torch.exp(b, out=scratch.like("second", b)), scratch)
        for a, b in zip(cache_blocks(p), cache_blocks(q), strict=True)
    ]
    return torch.cat(parts).clamp_(min=0)
