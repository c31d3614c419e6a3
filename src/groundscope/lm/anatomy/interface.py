"""Where attention passes by: one attention function, registered once, that lets an observer look.

transformers hands query, key and mask of every attention layer to a function chosen by
``config._attn_implementation``. :class:`AttentionTap` points that name at ours while a pass runs and
puts it back afterwards. Who observes is a context variable, so two models, two threads or two nested
calls never see each other's layers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from groundscope.lm.anatomy.prefix import prefix_of

IMPLEMENTATION = "groundscope"
# Rows of recomputed attention held at once when a layer's output must come from them.
_ROW_BYTES = 64 << 20
_FIRST_KEYS = 128
_LOOKED_AT = 1e-4


@dataclass(frozen=True)
class AttentionCall:
    """What one attention layer was called with.

    Attributes:
        module: The attention module.
        query: (batch, head, query row, channel), after rotary embedding.
        key: (batch, key head, key, channel); query head h reads key head ``h // (heads // key heads)``.
        mask: ``None`` (causal), boolean (True = visible) or additive, (batch, 1 or head, row, key).
        scaling: Factor on the products.
        softcap: Logits become ``softcap * tanh(logits / softcap)``; ``None`` for none.
        sinks: One extra logit per head that takes part in the softmax only; ``None`` for none.
        prefix: Keys and values, (1, key head, key, channel), that all sequences share and that go before ``key``;
            ``None`` for none. The mask covers both.
        value: (batch, key head, key, channel) where the output is nothing but weights times values; ``None`` elsewhere.
        logits: What :func:`last_logits` returns for all rows, where the layer needs it anyway; only to be read.
    """

    module: nn.Module
    query: Tensor
    key: Tensor
    mask: Tensor | None
    scaling: float
    softcap: float | None
    sinks: Tensor | None
    prefix: tuple[Tensor, Tensor] | None = None
    value: Tensor | None = None
    logits: tuple[Tensor, Tensor | None] | None = None


class AttentionObserver(Protocol):
    """Looks at attention layers while they run."""

    def attention(self, call: AttentionCall) -> Tensor | None:
        """Called once per attention layer, in order of execution.

        Returns:
            The layer's output for its last rows, (batch, row, head, channel), if the observer has computed that on
            the way (only where ``call.value`` is given): the layer then computes the rows before them only.
        """


class AttentionEditor(Protocol):
    """Changes what attention layers return while they run."""

    def edit(self, call: AttentionCall, value: Tensor, output: Tensor) -> Tensor:
        """Called once per attention layer, in order of execution.

        Args:
            call: What the layer was called with.
            value: (batch, key head, key, channel).
            output: (batch, query row, head, channel), what the layer would return.

        Returns:
            What takes the place of ``output``; it may be the same tensor, changed.
        """


_OBSERVER: ContextVar[AttentionObserver | None] = ContextVar("groundscope_attention_observer", default=None)
_EDITORS: ContextVar[tuple[AttentionEditor, ...]] = ContextVar("groundscope_attention_editors", default=())


@contextmanager
def observing(observer: AttentionObserver) -> Iterator[None]:
    """Send the attention layers that run inside the block to ``observer``."""
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)


@contextmanager
def editing(editor: AttentionEditor) -> Iterator[None]:
    """Let ``editor`` change what attention layers return inside the block, in this thread or task only.

    Nested blocks change it one after the other, the outermost first.
    """
    token = _EDITORS.set((*_EDITORS.get(), editor))
    try:
        yield
    finally:
        _EDITORS.reset(token)


def current_observer() -> AttentionObserver | None:
    """Return whoever observes in this thread or task."""
    return _OBSERVER.get()


def attention_logits(call: AttentionCall, batch: int, rows: slice, keys: slice, out: Tensor | None = None) -> Tensor:
    """Recompute logits before mask and softmax for some rows of one example.

    Returns:
        (head, row, key) in float32, or float64 for a float64 model; in ``out`` if that is given.
    """
    dtype = torch.float64 if call.query.dtype == torch.float64 else torch.float32
    query = call.query[batch, :, rows].to(dtype) * call.scaling  # (head, row, channel)
    key = call.key[batch, :, keys].to(dtype)  # (key head, key, channel)
    heads, count, channels = query.shape
    grouped = query.reshape(key.shape[0], -1, channels)  # (key head, group * row, channel)
    place = None if out is None else out.view(key.shape[0], -1, key.shape[1])
    logits = torch.bmm(grouped, key.transpose(1, 2), out=place).view(heads, count, -1)
    if call.softcap is not None:
        logits.div_(call.softcap).tanh_().mul_(call.softcap)
    return logits


def hide(logits: Tensor, call: AttentionCall, batch: int, rows: slice, keys: slice) -> Tensor:
    """Apply the layer's mask in place; hidden keys get a very low finite logit."""
    low = -1e30
    if call.mask is not None:
        mask = call.mask[batch, :, rows, keys]  # (1 or head, row, key)
        if mask.dtype == torch.bool:
            return logits.masked_fill_(~mask, low)
        return logits.add_(mask.to(logits.dtype)).clamp_(min=low)
    offset = call.key.shape[2] - call.query.shape[2]
    first_row = rows.start + offset
    hidden_from = max(0, first_row + 1 - keys.start)
    if hidden_from < logits.shape[-1]:
        position = torch.arange(hidden_from + keys.start, keys.stop, device=logits.device)
        row = torch.arange(first_row, rows.stop + offset, device=logits.device)
        logits[..., hidden_from:].masked_fill_(position[None, :] > row[:, None], low)
    return logits


def last_logits(call: AttentionCall, rows: int) -> tuple[Tensor, Tensor | None]:
    """Recompute the masked logits of the last rows of every sequence at once: what one step of a cached pass adds.

    Args:
        call: What the layer was called with; its last key belongs to its last row.
        rows: How many rows.

    Returns:
        (sequence, head, row, key) in float32 or float64, hidden keys very low; and which keys are visible, boolean
        (sequence, 1, row, key) or (1, 1, row, key), ``None`` where all are.
    """
    if call.logits is not None and rows == call.query.shape[2]:
        return call.logits
    dtype = torch.float64 if call.query.dtype == torch.float64 else torch.float32
    count, heads, _, channels = call.query.shape
    query = call.query[:, :, -rows:].to(dtype) * call.scaling
    parts = [_products(query, call.key.to(dtype))]
    if call.prefix is not None:
        shared = call.prefix[0].to(dtype)
        # All sequences' queries as rows of one: (1, key head, group * sequence * row, channel).
        together = query.view(count, shared.shape[1], -1, rows, channels).permute(1, 2, 0, 3, 4)
        parts.insert(0, _apart(_products(together.reshape(1, shared.shape[1], -1, channels), shared), count, heads))
    logits = torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]
    keys = logits.shape[-1]
    if call.softcap is not None:
        logits.div_(call.softcap).tanh_().mul_(call.softcap)
    low = -1e30
    if call.mask is not None:
        mask = call.mask[:, :, -rows:, -keys:]
        if mask.dtype == torch.bool:
            return logits.masked_fill_(~mask, low), mask[:, :1]
        return logits.add_(mask.to(dtype)).clamp_(min=low), mask[:, :1] > -1e4
    if rows == 1:
        return logits, None
    place = torch.arange(keys, device=logits.device)
    causal = place <= place[-rows:, None]
    return logits.masked_fill_(~causal, low), causal[None, None]


def _products(query: Tensor, key: Tensor) -> Tensor:
    """(batch, head, row, channel) x (batch, key head, key, channel) -> (batch, head, row, key)."""
    batch, heads, rows, channels = query.shape
    grouped = query.reshape(batch * key.shape[1], -1, channels)
    products = torch.bmm(grouped, key.reshape(-1, key.shape[2], channels).transpose(1, 2))
    return products.view(batch, heads, rows, -1)


def _apart(together: Tensor, count: int, heads: int) -> Tensor:
    """(1, key head, group * sequence * row, x) -> (sequence, head, row, x)."""
    groups, width = together.shape[1], together.shape[-1]
    split = together.view(groups, heads // groups, count, -1, width)
    return split.permute(2, 0, 1, 3, 4).reshape(count, heads, -1, width)


def softmax(logits: Tensor, sinks: Tensor | None, out: Tensor | None = None) -> Tensor:
    """Softmax over the last axis of (head, row, key); sums to less than one if there are sinks."""
    weights = torch.softmax(logits, dim=-1, out=out)
    if sinks is not None:
        # A sink is one more logit in the denominator.
        mass = log_total(logits, weights)
        weights.mul_(torch.sigmoid(mass - sinks.to(logits.dtype).view(-1, 1)).unsqueeze(-1))
    return weights


def weighted_values(weights: Tensor, values: Tensor) -> Tensor:
    """(head, row, key) weights times (key head, key, channel) values: (row, head, channel)."""
    heads, rows, _ = weights.shape
    grouped = weights.reshape(values.shape[0], -1, weights.shape[-1]).to(values.dtype)
    return torch.bmm(grouped, values).view(heads, rows, -1).transpose(0, 1)


def log_total(logits: Tensor, weights: Tensor) -> Tensor:
    """Logarithm of the softmax's denominator, (head, row): weights are ``exp(logits - log_total)``."""
    # Any key that is looked at tells it; the first ones are seen by every row, and usually looked at.
    first = weights[..., :_FIRST_KEYS].amax(-1)
    if weights.device.type == "cpu" and bool((first > _LOOKED_AT).all()):
        return logits[..., :_FIRST_KEYS].amax(-1) - first.log_()
    return logits.amax(-1) - weights.amax(-1).clamp_(min=torch.finfo(weights.dtype).tiny).log()


def _output_from_weights(call: AttentionCall, value: Tensor) -> Tensor:
    """The layer's own output for families whose weights SDPA cannot compute (soft-cap, sinks)."""
    batch, heads, rows, _ = call.query.shape
    keys = call.key.shape[2]
    step = max(1, _ROW_BYTES // (heads * keys * 4))
    output = call.query.new_empty(batch, rows, heads, value.shape[-1])
    for b in range(batch):
        for start in range(0, rows, step):
            window = slice(start, min(start + step, rows))
            logits = hide(attention_logits(call, b, window, slice(0, keys)), call, b, window, slice(0, keys))
            weights = softmax(logits, call.sinks)
            output[b, window] = weighted_values(weights, value[b])
    return output


def _output_behind(call: AttentionCall, value: Tensor, shared: Tensor) -> Tensor:
    """The layer's output for sequences that share a prefix: (sequence, row, head, channel)."""
    count, heads, rows, _ = call.query.shape
    groups, border = shared.shape[1], shared.shape[2]
    logits, _ = last_logits(call, rows)
    weights = softmax(logits, call.sinks).to(value.dtype)
    first = weights[..., :border].view(count, groups, -1, rows, border).permute(1, 2, 0, 3, 4)
    output = torch.bmm(first.reshape(groups, -1, border), shared[0])
    own = weights[..., border:].reshape(count * groups, -1, value.shape[2])
    rest = torch.bmm(own, value.reshape(-1, *value.shape[2:])).view(count, heads, rows, -1)
    return (_apart(output.unsqueeze(0), count, heads) + rest).transpose(1, 2).contiguous()


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    softcap, sinks, prefix = kwargs.pop("softcap", None), kwargs.pop("s_aux", None), prefix_of(key)
    plain = softcap is None and sinks is None and prefix is None
    causal = plain and attention_mask is None and query.shape[2] == key.shape[2]
    call = AttentionCall(
        module, query, key, attention_mask, float(scale), softcap, sinks, prefix, value if causal else None
    )
    if prefix is not None:
        call = replace(call, logits=last_logits(call, query.shape[2]))
    observer = _OBSERVER.get()
    last = None if observer is None else observer.attention(call)
    if call.prefix is not None:
        output = _output_behind(call, value, call.prefix[1])
    elif not plain:
        output = _output_from_weights(call, value)
    else:
        end = None if last is None else -last.shape[1]
        before = (states[:, :, :end] for states in (query, key, value))
        output, _ = sdpa_attention_forward(module, *before, attention_mask, scaling=scaling, **kwargs)
        if last is not None:
            output = torch.cat([output, last.to(output.dtype)], dim=1)
    for editor in _EDITORS.get():
        output = editor.edit(call, value, output)
    return output, None


AttentionInterface.register(IMPLEMENTATION, _attention)
# Without a mask function of the same name transformers passes mask=None: padding and windows would be ignored.
AttentionMaskInterface.register(IMPLEMENTATION, sdpa_mask)


class _Switch:
    """Sets attributes while somebody needs them, and puts them back when the last one leaves."""

    def __init__(self, changes: Callable[[nn.Module], Iterator[tuple[object, str, object]]]) -> None:
        self._changes = changes
        self._lock = threading.Lock()
        self._users = 0
        self._before: list[tuple[object, str, object]] = []

    @contextmanager
    def open(self, model: nn.Module) -> Iterator[None]:
        with self._lock:
            if self._users == 0:
                for target, name, value in self._changes(model):
                    self._before.append((target, name, getattr(target, name)))
                    setattr(target, name, value)
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                while self._users == 0 and self._before:
                    setattr(*self._before.pop())


# One pair per model, however many taps there are on it: only the last one out may put things back.
_SWITCHES: WeakKeyDictionary[nn.Module, tuple[_Switch, _Switch]] = WeakKeyDictionary()
_SWITCHES_LOCK = threading.Lock()


class AttentionTap:
    """Switches one model to our attention function, or to evaluation mode, while at least one pass runs.

    Args:
        model: A loaded transformers model.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        with _SWITCHES_LOCK:
            pair = _SWITCHES.setdefault(model, (_Switch(_attention_changes), _Switch(_evaluation_changes)))
        self._attention, self._evaluation = pair

    @contextmanager
    def open(self, attention: bool = True) -> Iterator[None]:
        """Hold the switches; the last one out puts everything back, also after an error.

        Args:
            attention: Whether attention is to pass by our function; without it the model's own one runs.
        """
        with ExitStack() as stack:
            stack.enter_context(self._evaluation.open(self._model))
            if attention:
                stack.enter_context(self._attention.open(self._model))
            yield


def _attention_changes(model: nn.Module) -> Iterator[tuple[object, str, object]]:
    configs = {id(m.config): m.config for m in model.modules() if hasattr(m, "config")}
    for config in configs.values():
        if hasattr(config, "_attn_implementation_internal"):
            yield config, "_attn_implementation_internal", IMPLEMENTATION


def _evaluation_changes(model: nn.Module) -> Iterator[tuple[object, str, object]]:
    for module in model.modules():
        if module.training:
            yield module, "training", False
