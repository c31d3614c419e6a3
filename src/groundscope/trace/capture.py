"""What is taken along while a pass runs: attention rows and residual rows of the response."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Protocol

from torch import Tensor, nn

from groundscope.lm.anatomy.blocks import Anatomy, tensor_of, watch_input
from groundscope.lm.anatomy.interface import AttentionCall, current_observer, observing
from groundscope.trace.signals.attention import RowGeometry


class LayerReader(Protocol):
    """Takes from each attention layer what it needs."""

    def add_layer(self, call: AttentionCall, with_output: bool = False) -> Tensor | None:
        """Called once per attention layer, in order of execution.

        Args:
            call: What the layer was called with.
            with_output: Whether the layer's output for the rows that are read is wanted.

        Returns:
            (row, head, channel) if it is wanted and at hand.
        """


class PassCapture:
    """Collects, for some sequences of one batch, what the requested signals need.

    Args:
        anatomy: The model's anatomy.
        attention: Collectors of the sequences whose attention is wanted.
        lens: Geometry of the sequences whose residual stream is wanted.
        with_mids: Whether the residual before the feed-forward block is wanted too.
        batch_size: Sequences in the batch.
        states: Geometry of the sequences of which single layers' states are wanted, and which layers.

    Attributes:
        outs: Per batch index, the layers' outputs at the predicting rows, (token, channel) each.
        mids: Per batch index, the residuals before the feed-forward blocks.
        states: Per batch index and layer, the single layers' outputs at the same rows.
    """

    def __init__(
        self,
        anatomy: Anatomy,
        attention: Sequence[LayerReader],
        lens: Sequence[RowGeometry],
        with_mids: bool,
        batch_size: int,
        states: tuple[Sequence[RowGeometry], Sequence[int]] = ((), ()),
    ) -> None:
        self._anatomy = anatomy
        self._attention = attention
        self._lens = lens
        self._with_mids = with_mids
        self._batch_size = batch_size
        self.outs: dict[int, list[Tensor]] = {g.batch: [] for g in lens}
        self.mids: dict[int, list[Tensor]] = {g.batch: [] for g in lens}
        self._state_rows, self._state_layers = states
        self.states: dict[tuple[int, int], Tensor] = {}
        self._branch: Tensor | None = None

    def attention(self, call: AttentionCall) -> Tensor | None:
        """Reduce one layer's attention, sequence by sequence; return what comes out of it where that saves time."""
        if call.module not in self._anatomy.attention:
            return None
        # On a processor, weights that are there anyway give the output for less than computing it again.
        alone = self._batch_size == 1 and len(self._attention) == 1 and call.query.device.type == "cpu"
        outputs = [rows.add_layer(call, with_output=alone) for rows in self._attention]
        return outputs[0][None] if alone and outputs[0] is not None else None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Watch the passes that run inside the block, in this thread or task only."""
        with ExitStack() as stack:
            if self._lens:
                for index, layer in enumerate(self._anatomy.layers):
                    self._watch_layer(stack, index, layer)
            for index in self._state_layers:
                watch = partial(self._on_state, index)
                stack.callback(self._anatomy.layers[index].register_forward_hook(watch).remove)
            stack.enter_context(observing(self))
            yield

    def _watch_layer(self, stack: ExitStack, index: int, layer: nn.Module) -> None:
        if self._with_mids:
            mid = self._anatomy.mids[index]
            if mid.reader is not None:
                stack.callback(watch_input(mid.reader, self._on_mid).remove)
            elif mid.feed_forward is not None:
                stack.callback(mid.feed_forward.register_forward_hook(self._on_branch).remove)
        stack.callback(layer.register_forward_hook(self._on_out).remove)

    def _rows(self, hidden: Tensor, g: RowGeometry) -> Tensor:
        start = g.rows.start
        # Copied, so that the layer's whole tensor can be freed.
        return hidden[g.batch, start : start + g.response].clone()

    def _on_mid(self, hidden: Tensor | None) -> None:
        if current_observer() is not self or hidden is None:
            return
        for g in self._lens:
            # Some families flatten (batch, row) before the block.
            shaped = hidden if hidden.dim() == 3 else hidden.view(self._batch_size, -1, hidden.shape[-1])
            self.mids[g.batch].append(self._rows(shaped, g))

    def _on_branch(self, _module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        if current_observer() is self:
            self._branch = tensor_of(output)

    def _on_state(self, layer: int, _module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        hidden = tensor_of(output)
        if current_observer() is self and hidden is not None:
            for g in self._state_rows:
                self.states[g.batch, layer] = self._rows(hidden, g)

    def _on_out(self, _module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        hidden = tensor_of(output)
        if current_observer() is not self or hidden is None:
            return
        for g in self._lens:
            out = self._rows(hidden, g)
            self.outs[g.batch].append(out)
            if self._branch is not None:
                self.mids[g.batch].append(out - self._rows(self._branch.view_as(hidden), g))
        self._branch = None
