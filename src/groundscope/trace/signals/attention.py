"""Signals from attention weights: the response's rows of one layer, reduced at once.

Only the rows of the response queries are recomputed, a block at a time, so memory is
O(heads x block x keys). Row j is position P-1+j: it predicts token j and is token j-1's own row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from groundscope.lm.anatomy.interface import AttentionCall, attention_logits, hide, log_total, softmax, weighted_values
from groundscope.lm.prompt.chunks import Chunks
from groundscope.trace.divergence import divergence
from groundscope.trace.scratch import Scratch
from groundscope.trace.selection import largest
from groundscope.trace.signals.chunks import most_attended, pooled_attention

# Bytes of one block of weights: what stays in a core's cache, and what keeps a GPU busy.
_CPU_BLOCK = 4 << 20
_GPU_BLOCK = 64 << 20
# Bytes of passage states that are gathered from at once.
_CPU_GATHERED = 1 << 20
# Channels that are gathered together at least.
_LINE = 64
_AGGTRUTH = ("aggtruth_sum", "aggtruth_cosine", "aggtruth_entropy", "aggtruth_js")
_LOGARITHMIC = frozenset({"aggtruth_entropy", "aggtruth_js"})
_SMALL_NORM = 1e-15
# Below this a divergence of single precision is told from the difference of entropies too roughly.
_CLOSE = 1e-3
# Up to here all pairs of heads cost less than two looks at all weights.
_FEW_HEADS = 32
TOP_SHARE = 0.1


@dataclass(frozen=True)
class RowGeometry:
    """Where things are for one example of a batch; positions count from the padded sequence's start.

    Attributes:
        batch: Index in the batch.
        offset: Padding before the first token.
        prompt: Prompt tokens P.
        response: Response tokens T.
        passages: Token ranges of the passages, relative to the first token.
        header: Where the generation header starts, relative to the first token.
        chunks: Chunks of passages and response, relative to the first token; read for ``chunk_context_score`` only.
    """

    batch: int
    offset: int
    prompt: int
    response: int
    passages: tuple[tuple[int, int], ...]
    header: int
    chunks: Chunks = field(default_factory=lambda: Chunks((), ()))

    @property
    def rows(self) -> slice:
        """Query rows P-1 ... P+T-1 in the padded sequence."""
        start = self.offset + self.prompt - 1
        return slice(start, start + self.response + 1)

    @property
    def keys(self) -> slice:
        """All keys of the example in the padded sequence."""
        return slice(self.offset, self.offset + self.prompt + self.response)

    @property
    def context(self) -> int:
        """Passage tokens."""
        return sum(end - start for start, end in self.passages)


@dataclass
class AttentionRows:
    """Collects, layer by layer, the attention signals of one example.

    Attributes:
        geometry: Where things are.
        signals: Which signals to collect.
        parts: Per signal, one (head, token) tensor per layer; for ``external_context_score`` the indices of
            the most attended passage tokens, (token, head, k); for ``chunk_context_score`` the most attended
            passage chunk, (head, response chunk); for ``passage_attention`` (token, passage).
        blind_layers: Layers in which some row sees not all of the passages (sliding windows).
    """

    geometry: RowGeometry
    signals: frozenset[str]
    parts: dict[str, list[Tensor]] = field(default_factory=dict)
    blind_layers: int = 0
    _scratch: Scratch = field(default_factory=Scratch)

    def add_layer(self, call: AttentionCall, with_output: bool = False) -> Tensor | None:
        """Reduce one layer's attention of this example.

        Args:
            call: What the layer was called with.
            with_output: Whether to return the layer's output for the response's rows; they must be the last ones,
                behind others.

        Returns:
            (row, head, channel) if it was asked for, the rows are where they must be, and the call holds values.
        """
        g = self.geometry
        heads = call.query.shape[1]
        width = g.prompt + g.response
        budget = _CPU_BLOCK if call.query.device.type == "cpu" else _GPU_BLOCK
        step = max(8, budget // (4 * heads * width))
        last = g.rows.start > 0 and g.rows.stop == call.query.shape[2] == g.keys.stop
        values = call.value if with_output and last else None
        blocks: list[dict[str, Tensor]] = []
        outputs: list[Tensor] = []
        self.blind_layers += int(self._hides_passages(call))
        for start in range(g.rows.start, g.rows.stop, step):
            rows = slice(start, min(start + step, g.rows.stop))
            shape = (heads, rows.stop - rows.start, width)
            exact = torch.float64 if call.query.dtype == torch.float64 else torch.float32
            out = self._scratch.take("logits", shape, exact, call.query.device)
            logits = hide(attention_logits(call, g.batch, rows, g.keys, out=out), call, g.batch, rows, g.keys)
            visible = self._visible(call, rows)
            weights = softmax(logits, call.sinks, out=self._scratch.like("weights", logits))
            if values is not None:
                outputs.append(weighted_values(weights, values[g.batch, :, g.keys]))
            numbers = torch.arange(rows.start, rows.stop, device=weights.device) - g.rows.start
            blocks.append(self.reduce(weights, logits, numbers, visible))
        for name in blocks[0]:
            self.parts.setdefault(name, []).append(self._joined(name, [block[name] for block in blocks]))
        return torch.cat(outputs) if outputs else None

    def _joined(self, name: str, blocks: list[Tensor]) -> Tensor:
        if name == "external_context_score":
            return torch.cat(blocks, dim=1)[:, :-1]
        if name == "passage_attention":
            return torch.cat(blocks, dim=0)[1:]
        joined = torch.cat(blocks, dim=1)
        if name == "chunk_context_score":
            return most_attended(joined[:, 1:], self.geometry.chunks)
        # Lookback ratios are of the predicting row, AggTruth's aggregations of the token's own row.
        return joined[:, 1:] if name in _AGGTRUTH else joined[:, :-1]

    def _hides_passages(self, call: AttentionCall) -> bool:
        if call.mask is None or not self.geometry.passages:
            return False
        g = self.geometry
        first = g.offset + g.passages[0][0]
        value = call.mask[g.batch, 0, g.rows.stop - 1, first]
        return bool(~value if value.dtype == torch.bool else value < -1e4)

    def _visible(self, call: AttentionCall, rows: slice) -> Tensor | None:
        """Boolean (1, row, key) for layers with a mask of their own; ``None`` where every earlier key is visible."""
        if call.mask is None:
            return None
        mask = call.mask[self.geometry.batch, :1, rows, self.geometry.keys]
        return mask if mask.dtype == torch.bool else mask > -1e4

    def reduce(self, weights: Tensor, logits: Tensor, rows: Tensor, visible: Tensor | None) -> dict[str, Tensor]:
        """Reduce one block of attention to the requested signals.

        Rows are reduced one by one, so a block may hold the same rows of several layers or sequences.

        Args:
            weights: (head, row, key), the keys from the example's first token on.
            logits: Their logits, finite.
            rows: (row,) numbers of the rows: row 0 predicts token 0.
            visible: Boolean (1, row, key); ``None`` where every earlier key is visible.

        Returns:
            Per signal (head, row), or what :attr:`parts` holds.
        """
        out: dict[str, Tensor] = {}
        if "lookback_ratio" in self.signals:
            context = weights[..., : self.geometry.header]
            out["lookback_ratio"] = self._lookback(context, weights, rows, visible)
        if "chunk_context_score" in self.signals:
            out["chunk_context_score"] = pooled_attention(weights, self.geometry.chunks)
        if not self.signals - {"lookback_ratio", "chunk_context_score"}:
            return out
        passage = _columns(weights, self.geometry.passages)  # (head, row, passage token)
        if "lookback_ratio_passages" in self.signals:
            out["lookback_ratio_passages"] = self._lookback(passage, weights, rows, visible, passages=True)
        if "passage_attention" in self.signals:
            sums = [weights[..., start:end].sum(-1).mean(0) for start, end in self.geometry.passages]
            out["passage_attention"] = torch.stack(sums, dim=-1) if sums else weights.new_zeros(weights.shape[1], 0)
        if "external_context_score" in self.signals:
            out["external_context_score"] = _most_attended(passage, self._scratch)
        wanted = self.signals.intersection(_AGGTRUTH)
        if wanted:
            total = log_total(logits, weights) if wanted & _LOGARITHMIC else None
            columns = _columns(logits, self.geometry.passages)
            out.update(aggregate_passages(passage, columns, total, wanted, self._scratch))
        return out

    def _lookback(
        self, context: Tensor, weights: Tensor, rows: Tensor, visible: Tensor | None, passages: bool = False
    ) -> Tensor:
        """Mean over visible context keys / (that + mean over header and new tokens up to the query).

        Keys outside a sliding window are in neither mean: they were not looked past, they could not be seen.
        """
        g = self.geometry
        new = weights[..., g.header :].sum(-1)
        total = context.sum(-1)
        if visible is None:
            new_count = rows + (g.prompt - g.header)
            mean = total / max(1, context.shape[-1])
        else:
            seen = _columns(visible, g.passages) if passages else visible[..., : g.header]
            new_count = visible[0, :, g.header :].sum(-1)
            mean = total / seen[0].sum(-1).clamp(min=1)
        new_mean = new / new_count.clamp(min=1)
        both = mean + new_mean
        # Compared with zero, not "> 0": NaN must stay NaN and be reported.
        ratio = torch.where(both == 0, torch.zeros_like(mean), mean / both)
        # Without a header the first token has nothing new to look back from: the ratio is 1 by definition.
        return torch.where(new_count == 0, torch.ones_like(ratio), ratio)


def _columns(values: Tensor, ranges: Sequence[tuple[int, int]]) -> Tensor:
    if len(ranges) == 1:
        return values[..., ranges[0][0] : ranges[0][1]]
    if not ranges:
        return values[..., :0]
    return torch.cat([values[..., start:end] for start, end in ranges], dim=-1)


def _most_attended(passage: Tensor, scratch: Scratch) -> Tensor:
    """Indices of the top tenth (at least one) of the passage tokens, (head, row, k)."""
    length = passage.shape[-1]
    if length == 0:
        return torch.zeros(*passage.shape[:-1], 0, dtype=torch.int16, device=passage.device)
    k = max(1, math.floor(TOP_SHARE * length))
    return largest(passage, k, scratch)


def aggregate_passages(
    passage: Tensor,
    logits: Tensor,
    log_sum: Tensor | None,
    wanted: frozenset[str] | set[str],
    scratch: Scratch | None = None,
) -> dict[str, Tensor]:
    """AggTruth's aggregations of one layer.

    Args:
        passage: (head, row, passage token) attention weights on the passages, not renormalised.
        logits: Their logits, finite.
        log_sum: (head, row) logarithm of the softmax's denominator; without it there are no ``aggtruth_entropy``
            and ``aggtruth_js``.
        wanted: Names of the aggregations.
        scratch: Memory to work in.

    Returns:
        Per name a (head, row) tensor.
    """
    scratch = scratch or Scratch()
    out: dict[str, Tensor] = {}
    total = passage.sum(-1)
    if "aggtruth_sum" in wanted:
        out["aggtruth_sum"] = total
    # What the head spends elsewhere; rounding may push the sum over one.
    residual = (1 - total).clamp_(min=0)
    if "aggtruth_cosine" in wanted:
        out["aggtruth_cosine"] = _mean_cosine(passage)
    if log_sum is None or not _LOGARITHMIC & wanted:
        return out
    # log p is logits - log_sum.
    product = torch.mul(passage, logits, out=scratch.like("product", passage))
    nats = log_sum * total - product.sum(-1) - torch.xlogy(residual, residual)
    if "aggtruth_js" in wanted:
        squared = _divergence_from_mean(passage, residual, nats, scratch)
        out["aggtruth_js"] = squared.clamp_(min=0).sqrt()
    if "aggtruth_entropy" in wanted:
        out["aggtruth_entropy"] = nats.clamp_(min=0) / math.log(2)
    return out


def _divergence_from_mean(passage: Tensor, residual: Tensor, nats: Tensor, scratch: Scratch) -> Tensor:
    """Jensen-Shannon divergence of each head from the heads' mean, in nats: (head, row).

    The entropy of the mixture minus the mean of both entropies, one of which is known, costs half of what the
    divergence itself does. Heads that nearly agree with the mean are done again.

    Args:
        passage: (head, row, passage token) attention weights.
        residual: (head, row) what is left to one.
        nats: (head, row) entropies of both together.
        scratch: Memory to work in.
    """
    mean, rest = passage.mean(0, keepdim=True), residual.mean(0, keepdim=True)
    tiny = torch.finfo(passage.dtype).tiny
    of_mean = torch.special.entr(rest) - (mean * (mean + tiny).log_()).sum(-1)
    middle = torch.add(mean * 0.5 + tiny, passage, alpha=0.5, out=scratch.like("middle", passage))
    logs = torch.log(middle, out=scratch.like("product", passage))
    squared: Tensor = torch.special.entr((residual + rest) / 2) - logs.mul_(middle).sum(-1) - (nats + of_mean) / 2
    close = squared < _CLOSE
    if bool(close.any()):
        means, rests = mean.expand_as(passage)[close], rest.expand_as(residual)[close]
        anew = divergence(passage[close], means, scratch)
        anew += divergence(residual[close].unsqueeze(-1), rests.unsqueeze(-1), scratch)
        squared[close] = anew
    return squared


def _mean_cosine(passage: Tensor) -> Tensor:
    """Mean cosine of each head with the others."""
    heads = passage.shape[0]
    if heads == 1 or passage.shape[-1] == 0:
        return torch.zeros(passage.shape[:-1], dtype=passage.dtype, device=passage.device)
    by_row = passage.transpose(0, 1)  # (row, head, passage token)
    if heads <= _FEW_HEADS:
        gram = torch.bmm(by_row, by_row.transpose(1, 2))
        norm = gram.diagonal(dim1=1, dim2=2).sqrt()  # (row, head)
        if bool((norm >= _SMALL_NORM).all()):
            together = torch.bmm(gram, norm.reciprocal().unsqueeze(-1)).squeeze(-1)
            return ((together / norm - 1) / (heads - 1)).t()
    # One product with the sum of all unit vectors; brought to size first: the squares of very small weights vanish.
    scaled = passage / passage.amax(-1, keepdim=True).clamp_(min=torch.finfo(passage.dtype).tiny)
    norm = torch.linalg.vector_norm(scaled, dim=-1)
    inverse = torch.where(norm > 0, 1 / norm, torch.zeros_like(norm))
    by_row = scaled.transpose(0, 1)
    together = torch.bmm(inverse.t().unsqueeze(1), by_row)  # (row, 1, passage token)
    cosine: Tensor = torch.bmm(by_row, together.transpose(1, 2)).squeeze(-1).t() * inverse
    others: Tensor = cosine - (norm > 0).to(cosine.dtype)
    return others.div_(heads - 1)


def context_scores(layers: Sequence[Tensor], context: Tensor, states: Tensor) -> list[Tensor]:
    """External context scores.

    Args:
        layers: Per layer the (head, token, k) most attended passage tokens.
        context: (passage token, channel) final-normed last states of the passages.
        states: (token, channel) final-normed last states of the predicting rows.

    Returns:
        Per layer (head, token) cosines; 0 where there is no passage.
    """
    if not layers or layers[0].shape[-1] == 0:
        return [torch.zeros(index.shape[:2], dtype=states.dtype, device=states.device) for index in layers]
    dots = [torch.zeros(index.shape[:2], dtype=states.dtype, device=states.device) for index in layers]
    squares = [torch.zeros_like(dot) for dot in dots]
    bags = [index.reshape(-1, index.shape[-1]).int() for index in layers]
    on_cpu = states.device.type == "cpu"
    # Rows are gathered in no order: a part of the channels that stays in a core's cache is gathered much faster,
    # in whole cache lines.
    fitting = _CPU_GATHERED // (context.shape[0] * context.element_size())
    width = max(_LINE, fitting - fitting % _LINE) if on_cpu else context.shape[1]
    for own, of_states in zip(torch.split(context, width, 1), torch.split(states, width, 1), strict=True):
        columns = own.contiguous()
        for number, bag in enumerate(bags):
            # The cosine does not care whether it is given the sum or the mean.
            sums = torch.nn.functional.embedding_bag(bag, columns, mode="sum").view(*dots[number].shape, -1)
            dots[number] += torch.bmm(sums.transpose(0, 1), of_states.unsqueeze(-1)).squeeze(-1).t()
            squares[number] += torch.linalg.vector_norm(sums, dim=-1).square_()
    length = torch.linalg.vector_norm(states, dim=-1)
    norms = [square.sqrt_() * length for square in squares]
    return [torch.where(norm == 0, norm, dot / norm) for dot, norm in zip(dots, norms, strict=True)]
