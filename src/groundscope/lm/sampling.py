"""Answers of the model's own: sampled side by side, from a seed, without touching any global random state."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from groundscope.errors import ContextTooLongError, NonFiniteError, UnsupportedModelError
from groundscope.lm.blocks import tensor_of
from groundscope.lm.layout import Ids
from groundscope.lm.running import end_ids

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


@torch.no_grad()
def sample(lm: LanguageModel, prompt_ids: Ids, sampling: Sampling) -> Samples:
    """Let a model answer a prompt several times.

    Noise from a generator of its own is added to the logits and the largest is taken, which draws from the softmax
    (the Gumbel trick): other random numbers of the process are neither used nor moved.

    Args:
        lm: The model.
        prompt_ids: (P,) ids of the prompt.
        sampling: How to draw.

    Raises:
        ContextTooLongError: If prompt and answers do not fit the model.
        UnsupportedModelError: If the model cannot generate.
        NonFiniteError: If its states are not finite.
    """
    from transformers import GenerationConfig, LogitsProcessorList

    model: Any = lm.model
    if not hasattr(model, "generate"):
        raise UnsupportedModelError(f"{lm.name} cannot generate, so no answers can be sampled from it.")
    length, limit = len(prompt_ids), lm.max_length
    # One token more than is kept: the last one's own state is read when it is fed.
    new = sampling.max_new_tokens + 1
    if limit is not None and length + new > limit:
        raise ContextTooLongError(length, new, limit, "Shorten the passages, or lower max_new_tokens.")
    ends = list(end_ids(lm))
    config = GenerationConfig(
        max_new_tokens=new,
        do_sample=False,
        num_beams=1,
        repetition_penalty=1.0,
        no_repeat_ngram_size=0,
        use_cache=True,
        eos_token_id=ends or None,
        pad_token_id=ends[0] if ends else 0,
    )
    prompt = torch.from_numpy(np.asarray(prompt_ids)).to(lm.device)[None].repeat(sampling.count, 1)
    watch = _LastRows()
    layers = lm.anatomy.layers
    handle = layers[(len(layers) + 1) // 2 - 1].register_forward_hook(watch)
    try:
        output = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            generation_config=config,
            logits_processor=LogitsProcessorList([_Noise(sampling.temperature, sampling.seed)]),
        )
    finally:
        handle.remove()
    answers = [_until(row, ends)[: sampling.max_new_tokens] for row in output[:, length:].tolist()]
    states = np.stack([watch.rows[len(answer)][index] for index, answer in enumerate(answers)])
    if not np.isfinite(states).all():
        raise NonFiniteError(f"{lm.name} produced NaN or infinity while it sampled answers. Check the weights.")
    return Samples(tuple(tuple(answer) for answer in answers), states)


class _Noise:
    """Turns the choice of the largest logit into a draw."""

    def __init__(self, temperature: float, seed: int) -> None:
        self._temperature = temperature
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, _ids: Tensor, scores: Tensor) -> Tensor:
        # Drawn on the CPU: the same on every device.
        uniform = torch.rand(scores.shape, generator=self._generator, dtype=torch.float64).clamp_(min=1e-300)
        noise = -torch.log(-torch.log(uniform)).to(torch.float32)
        return scores.float() / self._temperature + noise.to(scores.device)


class _LastRows:
    """Keeps a layer's output at the last position of every step, of its own thread only."""

    def __init__(self) -> None:
        self.rows: list[npt.NDArray[np.float32]] = []
        self._thread = threading.get_ident()

    def __call__(self, _module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        hidden = tensor_of(output)
        if hidden is not None and threading.get_ident() == self._thread:
            self.rows.append(hidden[:, -1].float().cpu().numpy())


def _until(ids: list[int], ends: list[int]) -> list[int]:
    for position, number in enumerate(ids):
        if number in ends:
            return ids[:position]
    return ids
