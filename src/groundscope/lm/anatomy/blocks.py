"""Where a decoder keeps its layers, its attention, its final norm and its unembedding.

Nothing is looked up by family. A short pass over a few tokens is watched once, and what each module
received and returned tells the anatomy: which modules call the attention interface, which tensor is the
residual before the feed-forward block, how hidden states become logits. What was found is then checked
against the model's own logits, so a family that does something else is refused, not misread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from groundscope.errors import NonFiniteError, UnsupportedModelError
from groundscope.lm.anatomy.interface import AttentionCall, AttentionTap, observing
from groundscope.lm.anatomy.unembedding import Unembedding

_FEED_FORWARD = ("mlp", "feed_forward", "block_sparse_moe", "moe", "ffn", "fc1", "shared_mlp", "experts")
_PROBE_TOKENS = 7
# A child of a layer, its name, what it received, what it returned.
_Child = tuple[nn.Module, str, Tensor | None, Tensor | None]


@dataclass(frozen=True)
class MidResidual:
    """Where one layer's residual before its feed-forward block can be read.

    Attributes:
        reader: Module whose input it is; ``None`` where attention and feed-forward run in parallel.
        feed_forward: For parallel layers, the module whose output is subtracted from the layer's output.
    """

    reader: nn.Module | None
    feed_forward: nn.Module | None = None


@dataclass(frozen=True)
class Anatomy:
    """What a model offers to the engine.

    Attributes:
        decoder: The stack without the output matrix.
        layers: Its layers in order.
        attention: Attention module -> index of its layer, for the layers that have attention.
        heads: Query heads per attention layer.
        mids: Residual before the feed-forward block, per layer; empty if it could not be found.
        unembedding: ``None`` if hidden states could not be turned into the model's own logits.
        problems: Why something is missing, by what it is missing for (``attention``, ``lens``, ``output``).
    """

    decoder: nn.Module
    layers: tuple[nn.Module, ...]
    attention: dict[nn.Module, int]
    heads: int
    mids: tuple[MidResidual, ...]
    unembedding: Unembedding | None
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """Indices of the layers that have attention."""
        return tuple(self.attention.values())

    def require(self, source: str, model_name: str) -> None:
        """Refuse if the model cannot yield a source of signals.

        Raises:
            UnsupportedModelError: With the reason found while probing.
        """
        if source in self.problems:
            raise UnsupportedModelError(f"{model_name} cannot yield {source} signals: {self.problems[source]}")


@dataclass
class _Calls:
    """What the modules received and returned during the probe; observes attention itself."""

    heads: list[tuple[nn.Module, int]] = field(default_factory=list)
    layer_in: dict[int, Tensor | None] = field(default_factory=dict)
    layer_out: dict[int, Tensor | None] = field(default_factory=dict)
    children: dict[int, list[_Child]] = field(default_factory=dict)
    tail: list[tuple[nn.Module, Tensor | None, Tensor | None]] = field(default_factory=list)
    last_hidden: Tensor | None = None

    def attention(self, call: AttentionCall) -> None:
        self.heads.append((call.module, call.query.shape[1]))


def inspect_model(model: Any, tap: AttentionTap) -> Anatomy:
    """Watch one short pass and return the model's anatomy.

    Raises:
        UnsupportedModelError: If the model has no stack of decoder layers or no output matrix.
        NonFiniteError: If the model produces NaN on ordinary tokens.
    """
    decoder = _decoder_of(model)
    layers = _layers_of(decoder)
    calls = _Calls()
    device = next(model.parameters()).device
    vocabulary = model.get_input_embeddings().weight.shape[0]
    ids = ((torch.arange(_PROBE_TOKENS, device=device) * 7 + 3) % vocabulary)[None]
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False}
    problems: dict[str, str] = {}
    with torch.no_grad():
        with tap.open(attention=False), _watching(decoder, layers, calls):
            logits = _checked_logits(model, model(**inputs))
        tapped = _tapped_logits(model, tap, inputs, calls)
        attention, heads = _attention_of(layers, calls, problems)
        if "attention" not in problems and (tapped is None or not _close(tapped, logits)):
            problems["attention"] = "its output changes when attention is computed through transformers' interface."
        mids = _mids_of(layers, calls, problems)
        unembedding = _unembedding_of(model, layers, calls, logits.double(), problems)
    return Anatomy(decoder, layers, attention, heads, mids, unembedding, problems)


def _checked_logits(model: nn.Module, output: Any) -> Tensor:
    logits = getattr(output, "logits", None)
    if not isinstance(logits, Tensor):
        raise UnsupportedModelError(
            f"{type(model).__name__} yields no logits; a causal language model was expected. "
            "Load it with AutoModelForCausalLM."
        )
    if bool(logits.isnan().any()):
        raise NonFiniteError(
            f"{type(model).__name__} produces NaN on ordinary tokens. "
            "Check the weights; if they are float16, load the model with dtype='bfloat16' or 'float32'."
        )
    return logits


def _tapped_logits(model: nn.Module, tap: AttentionTap, inputs: dict[str, Any], calls: _Calls) -> Tensor | None:
    """Logits with attention passing by our function; ``None`` if the model cannot run that way."""
    try:
        with tap.open(), observing(calls):
            return model(**inputs).logits  # type: ignore[no-any-return]
    except (AttributeError, TypeError, ValueError, RuntimeError):
        # Old attention code expects masks that the interface does not make; it is then read without attention.
        calls.heads.clear()
        return None


def _close(a: Tensor, b: Tensor) -> bool:
    loose = {torch.float64: 1e-6, torch.float32: 1e-3}.get(a.dtype, 5e-2)
    return float((a - b).abs().max()) <= loose * max(1.0, float(b.abs().max()))


def _decoder_of(model: nn.Module) -> nn.Module:
    finder = getattr(model, "get_decoder", None)
    decoder = finder() if callable(finder) else None
    if not isinstance(decoder, nn.Module) or decoder is model:
        decoder = next((child for child in model.children() if _lists_in(child)), None)
    if decoder is None:
        raise UnsupportedModelError(
            f"{type(model).__name__} has no decoder under an output matrix; a causal language model was expected. "
            "Load it with AutoModelForCausalLM."
        )
    return decoder


def _lists_in(module: nn.Module) -> list[nn.ModuleList]:
    return [child for child in module.children() if isinstance(child, nn.ModuleList) and len(child)]


def _layers_of(decoder: nn.Module) -> tuple[nn.Module, ...]:
    lists = _lists_in(decoder)
    if not lists:
        raise UnsupportedModelError(
            f"{type(decoder).__name__} keeps its layers in no list; groundscope reads stacks of decoder layers only."
        )
    return tuple(max(lists, key=lambda modules: sum(1 for _ in modules)))


@contextmanager
def _watching(decoder: nn.Module, layers: tuple[nn.Module, ...], calls: _Calls) -> Iterator[None]:
    with ExitStack() as stack:

        def watch(module: nn.Module, hook: Any) -> None:
            stack.callback(module.register_forward_hook(in_this_thread(hook), with_kwargs=True).remove)

        for index, layer in enumerate(layers):
            calls.children[index] = []
            stack.callback(watch_input(layer, in_this_thread(partial(calls.layer_in.__setitem__, index))).remove)
            for name, child in layer.named_children():
                watch(
                    child,
                    lambda m, a, k, out, i=index, n=name: calls.children[i].append(
                        (m, n, first_tensor(a, k), tensor_of(out))
                    ),
                )
            watch(layer, lambda _m, _a, _k, out, i=index: calls.layer_out.__setitem__(i, tensor_of(out)))
        for child in decoder.children():
            if not isinstance(child, nn.ModuleList):
                watch(child, lambda m, a, k, out: calls.tail.append((m, first_tensor(a, k), tensor_of(out))))
        watch(decoder, lambda _m, _a, _k, out: setattr(calls, "last_hidden", tensor_of(out)))
        yield


def tensor_of(output: Any) -> Tensor | None:
    """Return the hidden states among what a module returned."""
    if isinstance(output, Tensor):
        return output
    if hasattr(output, "last_hidden_state"):
        return output.last_hidden_state  # type: ignore[no-any-return]
    if isinstance(output, (tuple, list)) and output and isinstance(output[0], Tensor):
        return output[0]
    return None


def in_this_thread(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Keep a hook out of passes that run in other threads; they are not looked at and not changed.

    torch notes in two steps that a hook takes keywords: such a pass may call it in between without.
    """
    own = threading.get_ident()

    def only_here(*given: Any) -> Any:
        return hook(*given) if threading.get_ident() == own else None

    return only_here


def watch_input(module: nn.Module, watch: Callable[[Tensor | None], None]) -> RemovableHandle:
    """Show the hidden states that a module is called with, in whatever thread, before it runs."""

    def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        watch(first_tensor(args, kwargs or {}))  # without keywords: see in_this_thread

    return module.register_forward_pre_hook(hook, with_kwargs=True)


def first_tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Return the hidden states among what a module was called with."""
    if args and isinstance(args[0], Tensor):
        return args[0]
    for name in ("hidden_states", "x", "input", "inputs"):
        if isinstance(kwargs.get(name), Tensor):
            return kwargs[name]  # type: ignore[no-any-return]
    return None


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    """Whether two tensors hold the same memory, whatever their shapes."""
    if a is None or b is None:
        return False
    return a.data_ptr() == b.data_ptr() and a.numel() == b.numel()


def _attention_of(
    layers: tuple[nn.Module, ...], calls: _Calls, problems: dict[str, str]
) -> tuple[dict[nn.Module, int], int]:
    owner = {module: index for index, layer in enumerate(layers) for module in layer.modules()}
    attention = {module: owner[module] for module, _ in calls.heads if module in owner}
    heads = {count for module, count in calls.heads if module in owner}
    if not attention:
        problems["attention"] = (
            "none of its layers calls transformers' attention interface (old attention code, or a purely "
            "recurrent model). Detectors that need no attention, such as 'contrast', still work."
        )
    elif len(set(attention.values())) != len(attention) or len(calls.heads) != len(attention):
        problems["attention"] = "a layer runs attention more than once, so its heads cannot be told apart."
    elif len(heads) != 1:
        problems["attention"] = f"its layers differ in their number of heads ({sorted(heads)})."
    return attention, max(heads, default=0)


def _mids_of(layers: tuple[nn.Module, ...], calls: _Calls, problems: dict[str, str]) -> tuple[MidResidual, ...]:
    mids = []
    for index in range(len(layers)):
        mid = _mid_of(calls.layer_in.get(index), calls.layer_out.get(index), calls.children[index])
        if mid is None:
            problems["lens"] = (
                f"the residual before the feed-forward block of layer {index} "
                f"({type(layers[index]).__name__}) could not be found."
            )
            return ()
        mids.append(mid)
    return tuple(mids)


def _mid_of(
    entry: Tensor | None,
    exit_: Tensor | None,
    children: list[_Child],
) -> MidResidual | None:
    """Find the tensor that the feed-forward block reads (before its norm) and adds to.

    It is the last tensor, up to the feed-forward call, that is a sum: neither the layer's input nor a
    child's output. If there is none, attention and feed-forward read the same input.
    """
    if entry is None or exit_ is None:
        return None
    last = max((i for i, (_, name, _, _) in enumerate(children) if name in _FEED_FORWARD), default=None)
    first = min((i for i, (_, name, _, _) in enumerate(children) if name in _FEED_FORWARD), default=None)
    if last is None or first is None:
        return None
    mixed = False
    reader: nn.Module | None = None
    for i, (module, *_) in enumerate(children[: first + 1]):
        if mixed and _is_sum(i, children, entry):
            reader = module
        mixed = mixed or not _is_norm(module)
    if reader is not None:
        # A norm over a sum after the feed-forward block (post-norm layers): the block adds to what it reads.
        post_norm = any(_is_norm(m) and _is_sum(i, children, entry) for i, (m, *_) in enumerate(children) if i > last)
        return MidResidual(children[first][0] if post_norm else reader)
    branch = [out for _, name, _, out in children if name in _FEED_FORWARD]
    mixers = [
        out for m, name, _, out in children if name not in _FEED_FORWARD and not _is_norm(m) and not _is_dropout(m)
    ]
    if len(branch) != 1 or branch[0] is None or len(mixers) != 1 or mixers[0] is None:
        return None
    total = entry.double() + branch[0].view_as(entry).double() + mixers[0].view_as(entry).double()
    if not torch.allclose(total, exit_.double(), rtol=5e-2, atol=5e-2 * float(exit_.abs().max())):
        return None
    return MidResidual(None, children[last][0])


def _is_sum(i: int, children: list[_Child], entry: Tensor) -> bool:
    """Whether child ``i`` received neither the layer's input nor what an earlier child returned."""
    received = children[i][2]
    if received is None or received.numel() != entry.numel() or _same(received, entry):
        return False
    return not any(_same(received, returned) for *_, returned in children[:i])


def _is_dropout(module: nn.Module) -> bool:
    return isinstance(module, nn.Dropout)


def _is_norm(module: nn.Module) -> bool:
    return "norm" in type(module).__name__.lower()


def _unembedding_of(
    model: Any, layers: tuple[nn.Module, ...], calls: _Calls, logits: Tensor, problems: dict[str, str]
) -> Unembedding | None:
    head = model.get_output_embeddings()
    hidden = calls.layer_out.get(len(layers) - 1)
    norms: list[nn.Module] = []
    state = hidden
    for module, received, returned in calls.tail:
        if _same(received, state) and returned is not None:
            norms.append(module)
            state = returned
    reason = "its hidden states could not be turned into its own logits."
    if head is None or hidden is None or calls.last_hidden is None or state is None:
        problems["output"] = problems["lens"] = reason
        return None
    if state.shape != calls.last_hidden.shape or not torch.equal(state, calls.last_hidden):
        problems["output"] = problems["lens"] = reason
        return None
    softcap = getattr(model.config.get_text_config(), "final_logit_softcapping", None)
    raw = head(state).double()
    wanted = logits if softcap is None else torch.atanh((logits / softcap).clamp(-1 + 1e-12, 1 - 1e-12)) * softcap
    # The factor that the model puts on its logits, where it has one, read off the logits themselves.
    scale = float((raw * wanted).sum() / raw.square().sum())
    scale = 1.0 if abs(scale - 1.0) < 1e-3 else scale
    found = Unembedding(tuple(norms), head, scale, None if softcap is None else float(softcap))
    if not _close(found.own_logits(found.normed(hidden)).to(hidden.dtype), logits.to(hidden.dtype)):
        problems["output"] = problems["lens"] = reason
        return None
    return found
