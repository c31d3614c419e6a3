"""Attention of the rows that one step of a cached pass adds: all layers gathered, then reduced at once.

A step has few rows, so what counts is not arithmetic but how often it is started. The layers' logits are laid side
by side as rows of one block, and :class:`groundscope.trace.signals.attention.AttentionRows` reduces it as it reduces
the rows of a whole response.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from groundscope.lm.anatomy.interface import AttentionCall, last_logits, softmax
from groundscope.trace.scratch import Scratch
from groundscope.trace.signals.attention import AttentionRows, RowGeometry, context_scores

_BLOCK = 16 << 20
_LOW = -1e30


@dataclass(frozen=True, eq=False)
class Group:
    """Sequences of a batch that share a prompt.

    Attributes:
        geometry: Where things are; its response is empty.
        prompt: Number of the prompt.
        sequences: Their indices in the batch.
    """

    geometry: RowGeometry
    prompt: int
    sequences: tuple[int, ...]


class StepRows:
    """Collects the attention signals of the last rows of one pass.

    Args:
        groups: The batch.
        signals: Which signals to collect.
        first: Number of the first row: row 0 predicts token 0.
        rows: Rows to collect, the last ones of the pass.
        length: Positions in the batch after the pass, padding included.
        scratch: Memory to work in.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        signals: frozenset[str],
        first: int,
        rows: int,
        length: int,
        scratch: Scratch,
    ) -> None:
        self._groups = groups
        self._signals = signals
        self._first = first
        self._rows = rows
        self._length = length
        self._scratch = scratch
        self._readers = [AttentionRows(group.geometry, signals, _scratch=scratch) for group in groups]
        self._waiting: list[tuple[Tensor, Tensor | None, Tensor | None]] = []
        self._parts: list[dict[str, list[Tensor]]] = [{} for _ in groups]
        self._blind: list[Tensor | None] = [None] * len(groups)

    def add_layer(self, call: AttentionCall, with_output: bool = False) -> None:
        """Take the logits of one layer's last rows; the layer computes its output itself."""
        logits, visible = last_logits(call, self._rows)
        self._waiting.append((logits, visible, call.sinks))
        size = logits.shape[0] * logits.shape[1] * self._rows * self._length * 4
        # Sinks differ by layer.
        if call.sinks is not None or size * (len(self._waiting) + 1) > _BLOCK:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        for number, (group, reader) in enumerate(zip(self._groups, self._readers, strict=True)):
            logits = self._side_by_side(group)
            visible = self._visible(number, group)
            depth, sequences = len(self._waiting), len(group.sequences)
            sinks = self._waiting[0][2]
            weights = softmax(logits, sinks, out=self._scratch.like("weights", logits))
            numbers = torch.arange(self._first, self._first + self._rows, device=logits.device)
            found = reader.reduce(weights, logits, numbers.repeat(depth * sequences), visible)
            for name, values in found.items():
                if name == "passage_attention":
                    shaped = values.view(depth, sequences, self._rows, -1)
                else:  # (head, layer, sequence, row) and k for indices
                    shaped = values.view(values.shape[0], depth, sequences, self._rows, *values.shape[2:])
                self._parts[number].setdefault(name, []).append(shaped)
        self._waiting = []

    def _side_by_side(self, group: Group) -> Tensor:
        """(head, layer * sequence * row, key) logits, keys from the first token of the prompt on."""
        offset = group.geometry.offset
        heads = self._waiting[0][0].shape[1]
        width = self._length - offset
        shape = (heads, len(self._waiting), len(group.sequences), self._rows, width)
        block = self._scratch.take("logits", shape, self._waiting[0][0].dtype, self._waiting[0][0].device)
        for layer, (logits, _, _) in enumerate(self._waiting):
            chosen = logits if len(self._groups) == 1 else logits[list(group.sequences)]
            # A window's cache holds the last keys only; the others are not seen.
            missing = self._length - chosen.shape[-1]
            kept = max(missing - offset, 0)
            if kept:
                block[:, layer, ..., :kept] = _LOW
            block[:, layer, ..., kept:] = chosen[..., max(offset - missing, 0) :].transpose(0, 1)
        return block.view(heads, -1, width)

    def _visible(self, number: int, group: Group) -> Tensor | None:
        """Boolean (1, layer * sequence * row, key); ``None`` where every row sees all earlier keys."""
        depth = len(self._waiting)
        if all(visible is None and logits.shape[-1] == self._length for logits, visible, _ in self._waiting):
            return None
        offset, device = group.geometry.offset, self._waiting[0][0].device
        shape = (depth, len(group.sequences), self._rows, self._length)
        seen = torch.zeros(shape, dtype=torch.bool, device=device)
        for layer, (logits, visible, _) in enumerate(self._waiting):
            start = self._length - logits.shape[-1]
            if visible is None:
                seen[layer, ..., start:] = True
            else:
                chosen = visible[:, 0] if visible.shape[0] == 1 else visible[list(group.sequences), 0]
                seen[layer, ..., start:] = chosen
        seen = seen[..., offset:]
        if group.geometry.passages:
            hidden = (~seen[:, :, -1, group.geometry.passages[0][0]]).sum(0)
            before = self._blind[number]
            self._blind[number] = hidden if before is None else before + hidden
        return seen.reshape(1, -1, seen.shape[-1])

    def blind_layers(self, sequences: int) -> list[int]:
        """Per sequence, the layers in which the last row sees not all of the passages."""
        counts = [0] * sequences
        for group, blind in zip(self._groups, self._blind, strict=True):
            if blind is not None:
                for sequence, count in zip(group.sequences, blind.tolist(), strict=True):
                    counts[sequence] = int(count)
        return counts

    def finish(self, normed: Tensor, contexts: Sequence[Tensor]) -> dict[str, Tensor]:
        """Put layers and sequences together.

        Args:
            normed: (sequence, row, channel) final-normed last states of the rows.
            contexts: Per prompt, (passage token, channel) final-normed last states of the passages.

        Returns:
            Per signal (sequence, row, layer, head), or (sequence, row, passage), padded with zeros where prompts
            differ in their number of passages.
        """
        self._flush()
        per_group = [
            {name: self._joined(name, parts, group, normed, contexts) for name, parts in found.items()}
            for group, found in zip(self._groups, self._parts, strict=True)
        ]
        if len(per_group) == 1:
            return per_group[0]
        out: dict[str, Tensor] = {}
        for name, first in per_group[0].items():
            last = max(values[name].shape[-1] for values in per_group)
            shape = (normed.shape[0], *first.shape[1:-1], last)
            out[name] = first.new_zeros(shape)
            for group, values in zip(self._groups, per_group, strict=True):
                out[name][list(group.sequences), ..., : values[name].shape[-1]] = values[name]
        return out

    def _joined(
        self, name: str, parts: list[Tensor], group: Group, normed: Tensor, contexts: Sequence[Tensor]
    ) -> Tensor:
        if name == "passage_attention":
            return torch.cat(parts).mean(0)
        joined = torch.cat(parts, dim=1)
        if name == "external_context_score":
            exact = torch.float64 if normed.dtype == torch.float64 else torch.float32
            states = normed[list(group.sequences)].to(exact)  # (sequence, row, channel)
            depth = joined.shape[1]
            repeated = states.expand(depth, *states.shape).reshape(-1, states.shape[-1])
            (scores,) = context_scores([joined.flatten(1, 3)], contexts[group.prompt].to(exact), repeated)
            joined = scores.view(joined.shape[:4])
        return joined.permute(2, 3, 1, 0)
