"""How the next token is chosen: the likeliest, or drawn from a distribution that is warped as asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from groundscope.errors import InputError, NonFiniteError, is_finite
from groundscope.lm.sampling import draw_tokens

# Tokens among which a nucleus nearly always lies.
_HEAD = 1024
# Logits divided by less leave the range of floats.
_COLDEST = 1e-6


@dataclass(frozen=True)
class Sampler:
    """How tokens are chosen.

    Attributes:
        temperature: Divides the logits; 0 takes the likeliest token, the first of equals.
        top_p: Draw among the likeliest tokens that together have this probability; 1 for all.
        top_k: Draw among so many of the likeliest tokens; 0 for all.
        seed: Of the draws. Each sequence draws from a generator of its own, so its tokens depend on seed, number and
            logits, not on how many are drawn beside it, nor on other random numbers of the process.

    Raises:
        InputError: If a number is not usable, or tokens are to be cut off where none are drawn.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if not is_finite(self.temperature) or self.temperature < 0:
            raise InputError(
                "The 'temperature' parameter of Sampler must be a finite number of at least 0; 0 takes the likeliest "
                f"token. Got {self.temperature!r} instead."
            )
        if 0 < self.temperature < _COLDEST:
            raise InputError(
                f"The 'temperature' parameter of Sampler must be 0 or at least {_COLDEST:g}. Got {self.temperature!r} "
                "instead; 0 takes the likeliest token."
            )
        if not is_finite(self.top_p) or not 0 < self.top_p <= 1:
            raise InputError(
                f"The 'top_p' parameter of Sampler must be above 0 and at most 1. Got {self.top_p!r} instead."
            )
        counts: dict[str, object] = {"top_k": self.top_k, "seed": self.seed}
        for name, value in counts.items():
            if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 0:
                raise InputError(
                    f"The {name!r} parameter of Sampler must be an integer of at least 0. Got {value!r} instead."
                )
        if self.greedy and (self.top_p < 1 or self.top_k):
            raise InputError(
                f"Sampler(top_p={self.top_p}, top_k={self.top_k}) has no effect at temperature 0, which always takes "
                "the likeliest token. Set a temperature above 0, or leave them out."
            )
        # Plain numbers, which a decision log can be written with.
        for name, kind in (("temperature", float), ("top_p", float), ("top_k", int), ("seed", int)):
            object.__setattr__(self, name, kind(getattr(self, name)))

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken."""
        return self.temperature == 0

    def draws(self, count: int, stage: int = 0) -> Draws:
        """Return the draws of ``count`` sequences; another ``stage`` (a chunk, say) draws other numbers."""
        return Draws(self, [_generator(self.seed, stage, number) for number in range(count)])


class Draws:
    """Chooses tokens for the sequences of a batch; made by :meth:`Sampler.draws`."""

    def __init__(self, sampler: Sampler, generators: Sequence[torch.Generator]) -> None:
        self._sampler = sampler
        self._generators = list(generators)
        self._warpers = [] if sampler.greedy else _warpers(sampler)

    def keep(self, sequences: Sequence[int]) -> None:
        """Keep the draws of some sequences, in this order; each may be named once."""
        self._generators = [self._generators[i] for i in sequences]

    @torch.no_grad()
    def choose(self, logits: Tensor) -> Tensor:
        """Choose one token per sequence.

        Args:
            logits: (sequence, vocabulary); they are left as they are.

        Returns:
            (sequence,) ids, on the CPU.

        Raises:
            NonFiniteError: If the logits hold NaN, or no token is possible.
        """
        top = logits.amax(-1)
        if not bool(torch.isfinite(top).all()):
            raise NonFiniteError(
                "The model's logits hold NaN or infinity, so no token can be chosen. Check the weights; if they are "
                "float16, load the model with dtype='bfloat16' or 'float32'."
            )
        if self._sampler.greedy:
            return logits.argmax(-1).cpu()
        scores = logits
        for warper in self._warpers:
            scores = warper(None, scores)
        if self._sampler.top_p < 1:
            scores = nucleus(scores, float(self._sampler.top_p))
        # One number each: none is drawn for unlikely tokens.
        numbers = [torch.rand(1, generator=generator, dtype=torch.float64) for generator in self._generators]
        return draw_tokens(scores, torch.cat(numbers))


def nucleus(scores: Tensor, top_p: float) -> Tensor:
    """Hide all but the likeliest tokens that together have the probability ``top_p``.

    The same as transformers' ``TopPLogitsWarper``, which sorts the whole vocabulary: here the head of the distribution
    is looked at first.

    Args:
        scores: (sequence, vocabulary) logits.
        top_p: Between 0 and 1.

    Returns:
        A copy with hidden tokens at minus infinity.
    """
    top, index = torch.softmax(scores, dim=-1).topk(min(_HEAD, scores.shape[-1]), dim=-1)
    totals = top.cumsum(-1)
    if bool((totals[:, -1] < top_p).any()):
        from transformers import TopPLogitsWarper

        warped: Tensor = TopPLogitsWarper(top_p)(None, scores)
        return warped
    kept = scores.gather(-1, index).masked_fill(totals - top >= top_p, -torch.inf)
    return torch.full_like(scores, -torch.inf).scatter_(-1, index, kept)


def _warpers(sampler: Sampler) -> list[Any]:
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper

    warpers: list[Any] = [TemperatureLogitsWarper(float(sampler.temperature))]
    if sampler.top_k:
        warpers.append(TopKLogitsWarper(int(sampler.top_k)))
    return warpers


def _generator(*key: int) -> torch.Generator:
    seed = np.random.SeedSequence(list(key)).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(seed >> np.uint64(1)))
