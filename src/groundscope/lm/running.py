"""Sequences that a model goes on reading: prompts read once, their keys and values kept, tokens added to them."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from groundscope.errors import ContextTooLongError, InputError, LayoutError
from groundscope.lm.anatomy.prefix import behind
from groundscope.lm.prompt.layout import Ids

if TYPE_CHECKING:
    from groundscope.lm.language_model import LanguageModel


class Running:
    """Sequences of one batch and the model's cache of them; all grow by the same number of tokens.

    Prompts of unequal length are padded on the left, so that the next token has the same place in all.

    Args:
        lm: The model that reads.
        prompts: (P,) token ids of each prompt.

    Attributes:
        length: Positions read so far, padding included.
        width: Tokens of the longest prompt.
        pads: Padding before each sequence.

    Raises:
        LayoutError: If there is no prompt, an empty one, or one with ids that the model does not know.
        ContextTooLongError: If a prompt exceeds what the model can read.
    """

    def __init__(self, lm: LanguageModel, prompts: Sequence[Ids]) -> None:
        if not prompts or any(len(ids) == 0 for ids in prompts):
            raise LayoutError("Generation needs prompts of at least one token. Got none, or an empty one.")
        self._lm = lm
        self.length = 0
        self.width = max(len(ids) for ids in prompts)
        self.pads = [self.width - len(ids) for ids in prompts]
        padded = [
            np.pad(np.asarray(ids, dtype=np.int64), (pad, 0)) for ids, pad in zip(prompts, self.pads, strict=True)
        ]
        self._prompt_ids = torch.from_numpy(np.stack(padded))
        self.check(self._prompt_ids)
        self._cache = _new_cache(lm)
        self._shared = False
        decoder = lm.anatomy.decoder
        # Older releases of transformers call it past_key_values.
        known = inspect.signature(decoder.forward).parameters
        self._cache_name = "cache" if "cache" in known else "past_key_values"

    @property
    def size(self) -> int:
        """Number of sequences."""
        return len(self.pads)

    def check(self, ids: Tensor) -> None:
        """Refuse tokens that cannot be read next.

        Args:
            ids: (sequence, token), on the CPU.

        Raises:
            LayoutError: If an id is not the model's.
            ContextTooLongError: If a sequence would exceed what the model can read.
        """
        vocabulary = self._lm.input_embeddings().shape[0]
        if int(ids.max()) >= vocabulary or int(ids.min()) < 0:
            raise LayoutError(
                f"Token ids must be at least 0 and below the model's vocabulary of {vocabulary}. Got "
                f"{int(ids.min())} to {int(ids.max())} instead; use the tokenizer that belongs to the model."
            )
        total, limit = self.length + ids.shape[1] - min(self.pads), self._lm.max_length
        if limit is not None and total > limit:
            prompt = self.width - min(self.pads)
            advice = "Let less text follow the prompt, or shorten its passages."
            raise ContextTooLongError(prompt, total - prompt, limit, advice)

    @torch.inference_mode()
    def read(self, ids: Tensor | None) -> Tensor:
        """Read the next tokens of every sequence.

        Args:
            ids: (sequence, token), checked; ``None`` for the prompts, which are read first and once.

        Returns:
            The final-normed states, (sequence, token, channel).
        """
        given = self._prompt_ids if ids is None else ids
        count, device = given.shape[1], self._lm.device
        inputs: dict[str, Any] = {"input_ids": given.to(device), "use_cache": True, self._cache_name: self._cache}
        if any(self.pads):
            pads = torch.tensor(self.pads, device=device)[:, None]
            places = torch.arange(self.length + count, device=device)[None] - pads
            inputs["attention_mask"] = (places >= 0).long()
            inputs["position_ids"] = places[:, self.length :].clamp(min=0)
        # Only our own attention function knows of shared keys.
        with self._lm.tap.open(attention=True) if self._shared else nullcontext():
            hidden: Tensor = self._lm.anatomy.decoder(**inputs).last_hidden_state
        self.length += count
        return hidden

    def saved(self) -> tuple[int, list[Any]]:
        """Return what :meth:`restore` needs to undo what comes next, a pass that breaks off half-way say."""
        return self.length, [_copied(layer) for layer in self._cache.layers]

    def restore(self, saved: tuple[int, list[Any]]) -> None:
        """Go back to what was saved."""
        self.length, self._cache.layers = saved

    def fork(self, indices: Sequence[int]) -> Running:
        """Return chosen sequences, each as often as it is named, that go on independently; this one stays as it is.

        Copies of one sequence share its keys and values, where the model allows it; otherwise these are copied.
        """
        other = self._copy()
        chosen = list(indices)
        if len(chosen) > 1 and len(set(chosen)) == 1 and _can_share(self._lm):
            other._repeat(chosen[0], len(chosen))
        else:
            other.keep(chosen)
        return other

    def _copy(self) -> Running:
        other = copy.copy(self)
        other._cache = copy.copy(self._cache)
        other._cache.layers = [_copied(layer) for layer in self._cache.layers]
        return other

    def _repeat(self, sequence: int, copies: int) -> None:
        """Go on with copies of one sequence, which share what was read so far."""
        index = torch.tensor([sequence] * copies, device=self._lm.device)
        layers = self._cache.layers
        for number, layer in enumerate(layers):
            shared = behind(layer, sequence, copies)
            if shared is None:
                layer.reorder_cache(index)
            else:
                layers[number] = shared
        self.pads = [self.pads[sequence]] * copies
        self._shared = True

    def keep(self, indices: Sequence[int]) -> None:
        """Keep chosen sequences, in this order, and let the others go."""
        if list(indices) != list(range(self.size)):
            # Every kind of layer knows how to be put in another order, which may name a sequence twice.
            self._cache.reorder_cache(torch.tensor(list(indices), device=self._lm.device))
        self.pads = [self.pads[i] for i in indices]

    @property
    def can_roll_back(self) -> bool:
        """Whether tokens can be taken back: not once a window has moved on, nor from a recurrent state."""
        return all(
            not hasattr(layer, "recurrent_states")
            and (not getattr(layer, "is_sliding", False) or layer.get_seq_length() < layer.sliding_window)
            for layer in self._cache.layers
        )

    def check_roll_back(self, count: int) -> None:
        """Refuse to forget the last tokens where the cache does not hold what came before.

        Raises:
            InputError: If it does not.
        """
        if not self.can_roll_back:
            raise InputError(
                f"{self._lm.name} has sliding windows or recurrent layers, whose cache cannot be taken back by "
                f"{count} token(s). Fork before reading on, and go on with the one that you need."
            )

    def roll_back(self, count: int) -> None:
        """Forget the last tokens of every sequence; see :meth:`check_roll_back`."""
        self._cache.crop(-count)
        self.length -= count


def end_ids(lm: LanguageModel) -> tuple[int, ...]:
    """Return the ids of the tokens that end an answer: the generation configuration's and the tokenizer's."""
    configured = getattr(getattr(lm.model, "generation_config", None), "eos_token_id", None)
    found = list(configured) if isinstance(configured, (list, tuple)) else [configured]
    found.append(getattr(lm.tokenizer, "eos_token_id", None))
    return tuple(dict.fromkeys(int(number) for number in found if number is not None))


# Whether copies of one sequence may share its keys, found out once per model.
_SHARES: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def _can_share(lm: LanguageModel) -> bool:
    """Try it on a few tokens: shared and copied keys must give the same states."""
    if lm.model not in _SHARES:
        _SHARES[lm.model] = "attention" not in lm.anatomy.problems and _same_when_shared(lm)
    return _SHARES[lm.model]


def _same_when_shared(lm: LanguageModel) -> bool:
    vocabulary = lm.input_embeddings().shape[0]
    ids = (torch.arange(15) * 7 + 3) % vocabulary
    prompt = Running(lm, [ids[:9].numpy()])
    prompt.read(None)
    shared, copied = prompt._copy(), prompt._copy()
    shared._repeat(0, 2)
    copied.keep([0, 0])
    try:
        for piece in (ids[9:11].view(2, 1), ids[11:15].view(2, 2)):
            got, want = shared.read(piece), copied.read(piece)
            loose = {torch.float64: 1e-8, torch.float32: 1e-3}.get(want.dtype, 5e-2)
            if float((got - want).abs().max()) > loose * max(1.0, float(want.abs().max())):
                return False
    except (AttributeError, IndexError, TypeError, ValueError, RuntimeError):
        # Attention code that handles the keys between cache and interface does not find the shared ones.
        return False
    return True


def _new_cache(lm: LanguageModel) -> Any:
    from transformers import DynamicCache

    return DynamicCache(config=lm.model.config)


def _copied(layer: Any) -> Any:
    """A layer of a cache that can grow on its own; keys and values are replaced as they grow, never written to."""
    other = copy.copy(layer)
    for name, value in vars(other).items():
        if isinstance(value, dict):  # recurrent and convolution states are updated in place
            setattr(other, name, {k: v.clone() if isinstance(v, Tensor) else v for k, v in value.items()})
    return other
