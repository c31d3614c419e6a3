"""Reversible changes to what feed-forward blocks add to the residual stream, for any decoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from groundscope.errors import InputError
from groundscope.lm.anatomy.blocks import tensor_of, watch_input

if TYPE_CHECKING:
    from groundscope.lm.language_model import LanguageModel

# Called with the layer's index, the hidden states (batch, row, channel) that hold what the block added, and what it
# added; returns the states that take their place.
Change = Callable[[int, Tensor, Tensor], Tensor]


@contextmanager
def editing_feed_forward(lm: LanguageModel, layers: Sequence[int], change: Change) -> Iterator[None]:
    """Let ``change`` replace what follows from the feed-forward blocks of some layers, in this thread or task only.

    The model is as it was once the block is left, also through an error.

    Args:
        lm: The model.
        layers: 0-based.
        change: What is put in place; it must not write to what it is given.

    Raises:
        InputError: If the model has no such layer.
        UnsupportedModelError: If its feed-forward blocks cannot be found.
    """
    check_layers(lm, layers)
    with ExitStack() as stack:
        for layer in dict.fromkeys(layers):
            _Hooks(layer, change).install(stack, lm)
        yield


def check_layers(lm: LanguageModel, layers: Sequence[int]) -> None:
    """Refuse layers whose feed-forward blocks cannot be changed.

    Raises:
        InputError: If the model has no such layer.
        UnsupportedModelError: If its feed-forward blocks cannot be found.
    """
    lm.anatomy.require("lens", lm.name)
    count = len(lm.anatomy.layers)
    for layer in layers:
        if not 0 <= layer < count:
            raise InputError(f"{lm.name} has the layers 0 to {count - 1}. Got layer {layer}.")


# Hooks sit on the model, which other threads may use at the same time: they act where they were set only.
_ACTIVE: ContextVar[frozenset[_Hooks]] = ContextVar("groundscope_feed_forward_hooks", default=frozenset())


class _Hooks:
    """Hooks of one layer."""

    def __init__(self, layer: int, change: Change) -> None:
        self._layer = layer
        self._change = change
        self._mid: Tensor | None = None

    def install(self, stack: ExitStack, lm: LanguageModel) -> None:
        stack.callback(_ACTIVE.reset, _ACTIVE.set(_ACTIVE.get() | {self}))
        mid = lm.anatomy.mids[self._layer]
        if mid.reader is not None:
            stack.callback(watch_input(mid.reader, self._on_mid).remove)
            stack.callback(lm.anatomy.layers[self._layer].register_forward_hook(self._on_out).remove)
        elif mid.feed_forward is not None:
            stack.callback(mid.feed_forward.register_forward_hook(self._on_branch).remove)

    def _on_mid(self, hidden: Tensor | None) -> None:
        if self in _ACTIVE.get():
            self._mid = None if hidden is None else hidden.clone()

    def _on_out(self, _module: nn.Module, _args: tuple[Any, ...], output: Any) -> Any:
        hidden, mid = tensor_of(output), self._mid
        if hidden is None or mid is None or self not in _ACTIVE.get():
            return output
        self._mid = None
        return _replaced(output, self._change(self._layer, hidden, hidden - mid.view_as(hidden)))

    def _on_branch(self, _module: nn.Module, _args: tuple[Any, ...], output: Any) -> Any:
        branch = tensor_of(output)
        if branch is None or self not in _ACTIVE.get():
            return output
        return _replaced(output, self._change(self._layer, branch, branch))


def _replaced(output: Any, hidden: Tensor) -> Any:
    """Put hidden states where :func:`groundscope.lm.anatomy.blocks.tensor_of` finds them."""
    if isinstance(output, Tensor):
        return hidden
    if isinstance(output, (tuple, list)):
        return type(output)([hidden, *output[1:]])
    output.last_hidden_state = hidden
    return output
