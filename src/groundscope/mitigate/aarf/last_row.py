"""A reversible change to the last position of one pass: heads made louder, feed-forward blocks quieter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import Tensor

from groundscope.lm.anatomy.interface import AttentionCall, editing
from groundscope.lm.feed_forward import editing_feed_forward

if TYPE_CHECKING:
    from groundscope.lm.language_model import LanguageModel


@contextmanager
def changed_last_row(
    lm: LanguageModel,
    heads: Sequence[tuple[int, int]],
    layers: Sequence[int],
    alpha: float,
    beta: float,
    sequences: Sequence[bool],
) -> Iterator[None]:
    """Change heads and feed-forward blocks at the last position of the first pass inside the block.

    The model is as it was once the block is left, also through an error; other threads read it unchanged.

    Args:
        lm: The model.
        heads: (layer, head) of the heads.
        layers: The layers whose feed-forward blocks are changed.
        alpha: Factor on the outputs of the heads, before the output projection.
        beta: Factor on what the feed-forward blocks add.
        sequences: Which sequences of the batch are changed.
    """
    edit = _LastRow(lm, heads, alpha, beta, sequences)
    with lm.tap.open(), editing(edit), editing_feed_forward(lm, layers, edit.reduce):
        yield


class _LastRow:
    """Edits of one pass. Further passes, over random documents say, are left alone: every place is edited once."""

    def __init__(
        self,
        lm: LanguageModel,
        heads: Sequence[tuple[int, int]],
        alpha: float,
        beta: float,
        sequences: Sequence[bool],
    ) -> None:
        self._layers = lm.anatomy.attention
        self._heads: dict[int, list[int]] = {}
        for layer, head in dict.fromkeys(heads):
            self._heads.setdefault(layer, []).append(head)
        self._alpha, self._beta = alpha, beta
        self._count = len(sequences)
        self._chosen = [i for i, wanted in enumerate(sequences) if wanted]
        self._reduced: set[int] = set()

    def edit(self, call: AttentionCall, value: Tensor, output: Tensor) -> Tensor:
        """Amplify heads; ``output`` is (sequence, row, head, channel)."""
        layer = self._layers.get(call.module)
        heads = self._heads.pop(layer, []) if layer is not None else []
        if not heads:
            return output
        changed = output.clone()
        for sequence in self._chosen:
            changed[sequence, -1, heads] *= self._alpha
        return changed

    def reduce(self, layer: int, hidden: Tensor, added: Tensor) -> Tensor:
        """Take a part of what a feed-forward block added away again."""
        if layer in self._reduced:
            return hidden
        self._reduced.add(layer)
        changed = hidden.clone()
        rows = changed.view(self._count, -1, hidden.shape[-1])
        share = added.reshape(rows.shape)
        for sequence in self._chosen:
            rows[sequence, -1] += (self._beta - 1) * share[sequence, -1]
        return changed
