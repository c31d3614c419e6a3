"""What each attention head writes for what it reads: value and output matrices, for any decoder.

Nothing is looked up by name. One pass is watched in which every attention module reads unit vectors: the values that
then pass by are the value matrix, however the family fuses or orders its projections, and the module that reads the
heads' outputs next is the output projection.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from groundscope.errors import UnsupportedModelError
from groundscope.lm.anatomy.blocks import first_tensor, in_this_thread, watch_input
from groundscope.lm.anatomy.interface import AttentionCall, editing
from groundscope.lm.language_model import LanguageModel

# Positions per row of the pass: any model reads so many.
_ROW = 32
_CHECKS = 2
_STATES = ("hidden_states", "x", "input", "inputs")


@dataclass(frozen=True, eq=False)
class HeadWeights:
    """The matrices of one layer's heads, biases left out, in float32 (or float64).

    Attributes:
        value: (key head, channel, head channel): a key head's value of state ``x`` is ``x @ value``.
        output: (head, head channel, channel): what a head adds for ``v`` is ``v @ output``; query head h has the
            values of key head ``h // (heads // key heads)``.
    """

    value: Tensor
    output: Tensor


def head_weights(lm: LanguageModel) -> dict[int, HeadWeights]:
    """Return the matrices of every layer that has attention, by the layer's index.

    Raises:
        UnsupportedModelError: If a layer's values are no linear function of what it reads, its heads' outputs are
            changed before they are projected, or attention cannot be watched at all.
    """
    lm.anatomy.require("attention", lm.name)
    probe = _Probe(lm)
    rows = -(-len(probe.states) // _ROW)
    ids = torch.ones(rows, _ROW, dtype=torch.long, device=lm.device)
    with torch.no_grad():
        with lm.tap.open(), probe.running():
            lm.anatomy.decoder(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False)
        return probe.found()


class _Probe:
    """Puts unit vectors in place of what the attention modules read, and watches where they come out."""

    def __init__(self, lm: LanguageModel) -> None:
        self._lm = lm
        channels = lm.input_embeddings().shape[1]
        generator = torch.Generator().manual_seed(0)
        checks = torch.randn(_CHECKS, channels, generator=generator, dtype=torch.float64)
        # Nothing, each channel alone, and some mixtures to see whether the rest follows from these.
        self.states = torch.cat([torch.zeros(1, channels), torch.eye(channels), checks])
        self._values: dict[nn.Module, Tensor] = {}
        self._projections: dict[nn.Module, nn.Module] = {}
        self._outputs: dict[nn.Module, Tensor] = {}
        self._heads: dict[nn.Module, tuple[int, int]] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        with ExitStack() as stack:
            for module in self._lm.anatomy.attention:
                stack.callback(module.register_forward_pre_hook(in_this_thread(self._feed), with_kwargs=True).remove)
                for child in module.modules():
                    if child is not module:
                        watch = in_this_thread(partial(self.read, module, child))
                        stack.callback(watch_input(child, watch).remove)
            stack.enter_context(editing(self))
            yield

    def edit(self, call: AttentionCall, value: Tensor, output: Tensor) -> Tensor:
        """Keep values and outputs of the heads; change nothing."""
        if call.module in self._lm.anatomy.attention:
            count = len(self.states)
            # (batch, key head, key, channel) -> (state, key head, channel)
            self._values[call.module] = value.transpose(1, 2).flatten(0, 1)[:count].clone()
            self._heads[call.module] = (output.shape[2], output.shape[3])
            self._outputs[call.module] = output[0].flatten(1).clone()
        return output

    def _feed(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        received = first_tensor(args, kwargs)
        if received is None or received.dim() != 3 or received.shape[-1] != self.states.shape[1]:
            raise self._refusal("its attention does not read states as wide as its embeddings.")
        states = torch.zeros_like(received)
        states.view(-1, received.shape[-1])[: len(self.states)] = self.states.to(received)
        if args and args[0] is received:
            return (states, *args[1:]), kwargs
        name = next(name for name in _STATES if kwargs.get(name) is received)
        return args, {**kwargs, name: states}

    def read(self, owner: nn.Module, child: nn.Module, received: Tensor | None) -> None:
        """Take the first module that reads the heads' outputs as the projection."""
        if owner in self._projections or owner not in self._outputs or received is None:
            return
        outputs = self._outputs.pop(owner)
        flat = received.reshape(-1, received.shape[-1])[: len(outputs)]
        if flat.shape != outputs.shape or not torch.allclose(flat.double(), outputs.double(), rtol=1e-3, atol=1e-6):
            raise self._refusal("the outputs of its heads are gated or normed before they are projected.")
        self._projections[owner] = child

    def found(self) -> dict[int, HeadWeights]:
        """Put the matrices together, and check that they tell all."""
        return {index: self._weights(module) for module, index in self._lm.anatomy.attention.items()}

    def _weights(self, module: nn.Module) -> HeadWeights:
        if module not in self._values or module not in self._projections:
            raise self._refusal("the projection of its heads' outputs could not be found.")
        raw = self._values[module]
        exact = torch.float64 if raw.dtype == torch.float64 else torch.float32
        values = raw.to(exact) - raw[0].to(exact)
        channels = self.states.shape[1]
        matrix = values[1 : channels + 1]  # (channel, key head, head channel)
        want = torch.einsum("sc,ckd->skd", self.states[channels + 1 :].to(matrix), matrix)
        loose = {torch.float64: 1e-6, torch.float32: 1e-3}.get(raw.dtype, 5e-2)
        got = values[channels + 1 :]
        if float((got - want).abs().max()) > loose * max(1.0, float(want.abs().max())):
            raise self._refusal("its values are no linear function of what its attention reads.")
        heads, width = self._heads[module]
        projection = self._projections[module]
        eye = torch.cat([torch.zeros(1, heads * width), torch.eye(heads * width)]).to(raw)
        written = projection(eye).to(exact)
        output = (written[1:] - written[0]).view(heads, width, -1)
        return HeadWeights(matrix.transpose(0, 1).contiguous(), output)

    def _refusal(self, reason: str) -> UnsupportedModelError:
        return UnsupportedModelError(f"{self._lm.name} does not show what its heads copy: {reason}")
