"""Answers of the model's own: sampled side by side, from a seed, without touching any global random state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from groundscope.errors import ContextTooLongError, NonFiniteError, UnsupportedModelError
from groundscope.lm.anatomy.blocks import in_this_thread, tensor_of
from groundscope.lm.prompt.layout import Ids
from groundscope.lm.running import Running, end_ids

if TYPE_CHECKING:
    from groundscope.lm.language_model import LanguageModel


@dataclass(frozen=True)
class Sampling:
    """How answers are drawn.

    Attributes:
        count: How many.
        temperature: Divides the logits; above 0.
        max_new_tokens: Where an answer is cut off.
        seed: Of the draw.
    """

    count: int = 10
    temperature: float = 1.0
    max_new_tokens: int = 64
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Samples:
    """Sampled answers.

    Attributes:
        ids: Token ids of each, without the token that ends it.
        states: (sample, channel) float32 output of the middle layer at each answer's last token; at the prompt's
            last token for an empty answer.
    """

    ids: tuple[tuple[int, ...], ...]
    states: npt.NDArray[np.float32]


@torch.inference_mode()
def sample(lm: LanguageModel, prompt_ids: Ids, sampling: Sampling) -> Samples:
    """Let a model answer a prompt several times; the prompt is read once.

    Random numbers come from a generator of its own: others of the process are neither used nor moved. What one answer
    is does not depend on where the others end.

    Args:
        lm: The model.
        prompt_ids: (P,) ids of the prompt.
        sampling: How to draw.

    Raises:
        ContextTooLongError: If prompt and answers do not fit the model.
        UnsupportedModelError: If the model cannot generate.
        NonFiniteError: If its states are not finite.
    """
    unembedding = lm.anatomy.unembedding
    if unembedding is None or not hasattr(lm.model, "generate"):
        raise UnsupportedModelError(f"{lm.name} cannot generate, so no answers can be sampled from it.")
    length, limit, count, budget = len(prompt_ids), lm.max_length, sampling.count, sampling.max_new_tokens
    if limit is not None and length + budget > limit:
        raise ContextTooLongError(length, budget, limit, "Shorten the passages, or lower max_new_tokens.")
    ends = torch.tensor(end_ids(lm), dtype=torch.long)
    # Drawn on the CPU, one number per token: the same on every device.
    numbers = torch.rand(budget, count, generator=torch.Generator().manual_seed(sampling.seed), dtype=torch.float64)
    watch = _LastRows()
    layers = lm.anatomy.layers
    middle = layers[(len(layers) + 1) // 2 - 1]
    drawn: list[Tensor] = []
    ended = torch.zeros(count, dtype=torch.bool)
    with lm.tap.open(attention=False):
        running = Running(lm, [prompt_ids])
        with watch.over(middle):
            hidden = running.read(None)[:, -1]
        running = running.fork([0] * count)
        logits = unembedding.own_logits(hidden).expand(count, -1)
        for row in numbers:
            drawn.append(draw_tokens(logits.double() / sampling.temperature, row))
            ended |= torch.isin(drawn[-1], ends)
            if bool(ended.all()):
                break
            with watch.over(middle):
                hidden = running.read(drawn[-1][:, None])[:, -1]
            logits = unembedding.own_logits(hidden)
    answers = [_until(row, ends.tolist()) for row in torch.stack(drawn, dim=1).tolist()]
    # The prompt's last row was read once for all.
    states = np.stack([watch.rows[len(answer)][index if answer else 0] for index, answer in enumerate(answers)])
    if not np.isfinite(states).all():
        raise NonFiniteError(f"{lm.name} produced NaN or infinity while it sampled answers. Check the weights.")
    return Samples(tuple(tuple(answer) for answer in answers), states)


def draw_tokens(scores: Tensor, numbers: Tensor) -> Tensor:
    """Draw one token per row from the softmax; the work on the CPU is the same on every device.

    Args:
        scores: (sequence, vocabulary) logits, warped as wanted.
        numbers: (sequence,) float64 in [0, 1), on the CPU.

    Returns:
        (sequence,) ids, on the CPU.
    """
    totals = torch.softmax(scores.double(), dim=-1).cumsum(-1).cpu()
    places = torch.searchsorted(totals, numbers[:, None] * totals[:, -1:], right=True).squeeze(-1)
    # Rounding may lift the product to the whole total.
    return places.clamp_(max=scores.shape[-1] - 1)


class _LastRows:
    """Keeps a layer's output at the last position of every step, of its own thread only."""

    def __init__(self) -> None:
        self.rows: list[npt.NDArray[np.float32]] = []

    @contextmanager
    def over(self, layer: nn.Module) -> Iterator[None]:
        """Watch what runs inside the block."""
        handle = layer.register_forward_hook(in_this_thread(self))
        try:
            yield
        finally:
            handle.remove()

    def __call__(self, _module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        hidden = tensor_of(output)
        if hidden is not None:
            self.rows.append(hidden[:, -1].float().cpu().numpy())


def _until(ids: list[int], ends: list[int]) -> list[int]:
    for position, number in enumerate(ids):
        if number in ends:
            return ids[:position]
    return ids
