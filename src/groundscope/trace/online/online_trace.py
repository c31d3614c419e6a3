"""Signals while a text grows: the prompt is read once, then each token costs one step of the cached model.

What :func:`groundscope.trace.engine.trace_layouts` computes for a finished text, :class:`OnlineTrace` computes
token by token, with the same code. Feeding token t, at position P+t, computes row t+1: it tells what token t itself
looks at, and predicts token t+1. So a signal of token t is known at one of three moments, see :func:`known_when`.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from groundscope.errors import InputError, NonFiniteError, check_count, is_index
from groundscope.lm.prompt.layout import Layout, Segment
from groundscope.lm.prompt.offsets import Offsets
from groundscope.trace.engine import check_layouts
from groundscope.trace.online.step import CHOSEN, NORMED, StepReader
from groundscope.trace.signals import check_signals, spec_of
from groundscope.trace.trace import FloatArray, Trace

if TYPE_CHECKING:
    from groundscope.lm.language_model import LanguageModel

Moment = Literal["before", "chosen", "fed"]
_FED = frozenset({"aggtruth_sum", "aggtruth_cosine", "aggtruth_entropy", "aggtruth_js", "passage_attention"})
_NEVER = frozenset({"chunk_context_score", "response_chunk"})
# Rows in one pass; longer pieces are read in several.
_ROWS = 64


def known_when(signal: str) -> Moment:
    """Return when a signal of token t is known.

    ``before`` the token is chosen (what its predicting row tells: lookback ratios, external context score, lens,
    entropy, energy, mmd, hidden states), once it is ``chosen`` (what needs its id: log probabilities, the calibrated
    rate), or once it is ``fed`` (what its own row tells: AggTruth's aggregations, attention per passage).

    Raises:
        UnknownNameError: If there is no such signal.
        InputError: If it needs the finished text.
    """
    spec_of(signal)
    if signal in _NEVER:
        raise InputError(
            f"The signal {signal!r} cannot be had while the text is written: it needs the chunks of the finished "
            "response. Trace the finished text, or use a detector that reads other signals."
        )
    if signal in CHOSEN:
        return "chosen"
    return "fed" if signal in _FED else "before"


class OnlineTrace:
    """Sequences that grow token by token, and their signals so far.

    The model is left as it was after every call; there is nothing to close.

    Args:
        lm: The model that reads.
        prompts: One layout or several; their prompts are read, their responses are not.
        signals: Names of signals. Those that compare with random documents keep one more cache per document.

    Attributes:
        signals: The requested names.
        tokens: How many tokens each sequence has been fed.

    Raises:
        UnknownNameError: If a signal is not known.
        InputError: If a signal cannot be had while the text is written.
        UnsupportedModelError: If the model cannot yield one, or has no logits to choose from.
        LayoutError: If a prompt lacks the random documents that a signal compares with.
        ContextTooLongError: If a prompt does not fit the model.
    """

    def __init__(self, lm: LanguageModel, prompts: Layout | Sequence[Layout], signals: Sequence[str] = ()) -> None:
        self.signals = () if not isinstance(signals, str) and len(signals) == 0 else check_signals(signals)
        self._moments = {name: known_when(name) for name in self.signals}
        self.lm = lm
        self.tokens = 0
        layouts = [prompts] if isinstance(prompts, Layout) else check_layouts(prompts)
        computed = [name for name in self.signals if spec_of(name).source != "layout"]
        self._reader = StepReader(lm, layouts, computed)
        self._history: dict[str, list[Tensor]] = {}
        self._ids: list[Tensor] = []
        self._logits: Tensor | None = None
        found = self._advance(None)
        self._shapes = {name: values.shape[2:] for name, values in found.items()}
        self._ahead = {name: values[:, -1] for name, values in found.items() if name not in _FED}

    @property
    def size(self) -> int:
        """Number of sequences."""
        return self._reader.size

    @property
    def logits(self) -> Tensor:
        """(sequence, vocabulary) logits of the next token, float32 or float64; not to be written to."""
        if self._logits is None:
            self._logits = self._reader.logits(self._ahead[NORMED])
        return self._logits

    @property
    def ahead(self) -> Mapping[str, Tensor]:
        """Signals of the next token that are known before it is chosen, (sequence, ...): see their axes."""
        return {name: values for name, values in self._ahead.items() if name in self.signals}

    @property
    def blind_layers(self) -> tuple[int, ...]:
        """Per sequence, the attention layers whose window hides a part of the passages from the last row."""
        return tuple(self._reader.blind_layers)

    def available(self, token: int) -> frozenset[str]:
        """Return which of the requested signals are known of a token, 0-based, as things stand."""
        if token < self.tokens:
            return frozenset(self.signals)
        return frozenset(n for n, moment in self._moments.items() if moment == "before" and token == self.tokens)

    def ids(self, sequence: int) -> list[int]:
        """Return the tokens that a sequence has been fed."""
        return [int(number) for block in self._ids for number in block[sequence]]

    def prompt(self, sequence: int) -> Layout:
        """Return the layout whose prompt a sequence grew from."""
        return self._reader.layouts[self._reader.prompt_of[sequence]]

    def values(self, name: str, first: int = 0, last: int | None = None) -> Tensor:
        """Return a requested signal of the tokens ``first`` to ``last`` (exclusive; default: all that were fed).

        Returns:
            (sequence, token, ...): see the signal's axes. Passages beyond a prompt's own are 0.
        """
        stop = self.tokens if last is None else last
        if name == "passage_percentage":
            layouts = [self.prompt(i) for i in range(self.size)]
            passage = torch.tensor([layout.passage_tokens for layout in layouts])[:, None]
            length = torch.tensor([layout.prompt_length for layout in layouts])[:, None]
            return passage / (length + torch.arange(first, stop))
        if name not in self.signals:
            spec_of(name)
            raise InputError(f"The signal {name!r} was not requested. Requested were {', '.join(self.signals)}.")
        blocks = self._history.get(name)
        if blocks and self.tokens - blocks[-1].shape[1] <= first:
            begin = self.tokens - blocks[-1].shape[1]
            return blocks[-1][:, first - begin : stop - begin]
        return self._joined(name)[:, first:stop]

    def feed(self, ids: Tensor | Sequence[Sequence[int]]) -> None:
        """Let every sequence grow by the same number of tokens, at least one.

        Args:
            ids: (sequence, token).

        Raises:
            InputError: If the shape is another.
            ContextTooLongError: If a sequence no longer fits the model; nothing has been fed then.
            LayoutError: If an id is not the model's; nothing has been fed then.
        """
        try:
            given = torch.as_tensor(ids).cpu()
        except (TypeError, ValueError, RuntimeError) as exc:
            raise InputError(f"The 'ids' parameter of feed must hold token ids. Got {exc}.") from exc
        if given.dim() != 2 or given.shape[0] != self.size or given.shape[1] < 1:
            raise InputError(
                f"The 'ids' parameter of feed must be of shape ({self.size}, tokens), with at least one token. "
                f"Got {tuple(given.shape)} instead."
            )
        if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
            raise InputError(f"The 'ids' parameter of feed must hold whole numbers. Got {given.dtype} instead.")
        given = given.long()
        self._reader.check(given)
        for piece in torch.split(given, max(1, _ROWS // self.size), dim=1):
            self._grow(piece)

    def _advance(self, ids: Tensor | None) -> dict[str, Tensor]:
        found = self._reader.advance(ids, 0 if ids is None else self.tokens + 1)
        self._logits = None
        if any(spec_of(name).source == "output" for name in self.signals):
            logits = self._reader.logits(found[NORMED])
            self._logits = logits[:, -1]
            found |= self._reader.output(logits)
        return found

    def _grow(self, ids: Tensor) -> None:
        logits = self._logits
        found = self._advance(ids)
        predicting = {
            name: torch.cat([waiting.unsqueeze(1), found[name][:, :-1]], dim=1)
            for name, waiting in self._ahead.items()
        }  # fmt: skip
        known = logits.unsqueeze(1) if logits is not None and ids.shape[1] == 1 else None
        own = {name: values for name, values in found.items() if name in _FED}
        for name, block in (predicting | own | self._reader.chosen(ids, predicting, known)).items():
            self._history.setdefault(name, []).append(block)
        self._ahead = {name: found[name][:, -1] for name in self._ahead}
        self._ids.append(ids)
        self.tokens += ids.shape[1]

    def _joined(self, name: str) -> Tensor:
        """All of a signal in one block, which then stands for the blocks."""
        blocks = self._history.get(name, [])
        if not blocks:
            return torch.zeros(self.size, 0, *self._shapes.get(name, ()))
        if len(blocks) > 1:
            self._history[name] = blocks = [torch.cat(blocks, dim=1)]
        return blocks[0]

    def fork(self, copies: int = 1, sequences: Sequence[int] | None = None) -> OnlineTrace:
        """Return sequences that share what was read so far and go on independently; this one stays as it is.

        The prompt is not read again: its keys and values are copied, ``copies`` times in memory; with 1 copy of all
        sequences they are shared. A fork is also the way back for models whose cache cannot be rolled back.

        Args:
            copies: How often each sequence is taken; the copies of one stand side by side.
            sequences: Which ones; by default all.
        """
        check_count("fork", "copies", copies)
        chosen = [i for i in self._checked(sequences) for _ in range(copies)]
        other = copy.copy(self)
        other._reader = self._reader.fork(chosen)
        other._take(chosen)
        return other

    def keep(self, sequences: int | Sequence[int]) -> None:
        """Keep some sequences, in this order, and let the others and their caches go."""
        chosen = self._checked([sequences] if isinstance(sequences, int) else sequences)
        self._reader.keep(chosen)
        self._take(chosen)

    def _checked(self, sequences: Sequence[int] | None) -> list[int]:
        chosen = list(range(self.size) if sequences is None else sequences)
        if not chosen or not all(is_index(i, self.size) for i in chosen):
            raise InputError(f"Sequences are numbered 0 to {self.size - 1}, and one is needed. Got {chosen} instead.")
        return chosen

    def _take(self, sequences: Sequence[int]) -> None:
        index = torch.tensor(list(sequences))
        self._history = {name: [self._joined(name)[index.to(self._joined(name).device)]] for name in self._history}
        self._ahead = {name: values[index.to(values.device)] for name, values in self._ahead.items()}
        self._ids = [torch.cat(self._ids, dim=1)[index]] if self._ids else []
        if self._logits is not None:
            self._logits = self._logits[index.to(self._logits.device)]

    def roll_back(self, count: int) -> None:
        """Take the last tokens of every sequence back, as if they had never been fed.

        Raises:
            InputError: If there are not so many, or the model's cache does not hold what came before (sliding
                windows that have moved on, recurrent layers): fork before feeding instead.
        """
        check_count("roll_back", "count", count)
        if count > self.tokens:
            raise InputError(f"Only {self.tokens} token(s) have been fed. Got {count} to take back.")
        self._reader.roll_back(count)
        left = self.tokens - count
        self._ahead = {name: self._joined(name)[:, left] for name in self._ahead}
        self._history = {name: [self._joined(name)[:, :left]] for name in self._history} if left else {}
        self._ids = [torch.cat(self._ids, dim=1)[:, :left]] if left else []
        self._logits = None
        self.tokens = left

    def trace(
        self, sequence: int, length: int | None = None, text: str | None = None, offsets: Offsets | None = None
    ) -> Trace:
        """Return the trace of what a sequence has been fed, as the engine would return it for the finished text.

        Args:
            sequence: Which one.
            length: How many of its tokens; by default all.
            text: The response's text, if known.
            offsets: (token, 2) code-point offsets into it.

        Raises:
            NonFiniteError: If the model produced NaN or infinity.
        """
        prompt, stop = self.prompt(sequence), self.tokens if length is None else length
        ids = np.asarray(self.ids(sequence)[:stop], dtype=np.int64)
        end = prompt.prompt_length + len(ids)
        kept = tuple(segment for segment in prompt.segments if segment.kind != "response")
        layout = dataclasses.replace(
            prompt,
            response_ids=ids,
            response=text,
            response_offsets=offsets,
            segments=(*kept, Segment("response", prompt.prompt_length, end)) if kept else (),
            chunks=None,
        )
        arrays: dict[str, FloatArray] = {}
        for name in self.signals:
            values = self.values(name, 0, stop)[sequence]
            if name == "passage_attention":
                values = values[..., : len(prompt.passages)]
            arrays[name] = values.cpu().numpy().astype(np.float32, copy=False)
            broken = np.argwhere(~np.isfinite(arrays[name]))
            if len(broken):
                raise NonFiniteError(
                    f"{self.lm.name} produced NaN or infinity: signal {name!r}, response token {int(broken[0][0])}. "
                    "Check the weights; if they are float16, load the model with dtype='bfloat16' or 'float32'."
                )
        blind = self.blind_layers[sequence]
        return Trace(layout, arrays, self.lm.name, self.lm.anatomy.attention_layers, blind)
