"""A session: sequences that are being written from prompts that were read once, with text, signals, forks."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from torch import Tensor

from groundscope.errors import InputError, check_choice, is_index
from groundscope.lm.prompt.layout import Layout
from groundscope.mitigate.writing.spelling import Spelling, as_offsets
from groundscope.trace.online.online_trace import OnlineTrace
from groundscope.trace.trace import Trace

if TYPE_CHECKING:
    from groundscope.lm.language_model import LanguageModel

Reason = Literal["end", "stop", "length"]


@dataclass
class _Written:
    """What is known of one sequence beside its signals."""

    spelling: Spelling
    reason: Reason | None = None
    ended_at: int = 0
    length: int = 0
    characters: int = 0

    def copy(self) -> _Written:
        return dataclasses.replace(self, spelling=self.spelling.copy())


class Session:
    """Sequences of one batch that are being written; they grow together, and each may end on its own.

    The model is left as it was after every call, also after an error; there is nothing to close.

    Args:
        lm: The model that writes.
        prompts: One layout or several, as :meth:`groundscope.lm.prompt.render.Renderer.prompt` makes them; responses in
            them are not read.
        signals: Names of signals to compute on the way, see :func:`groundscope.trace.online.online_trace.known_when`.

    Raises:
        GroundscopeError: See :class:`groundscope.trace.online.online_trace.OnlineTrace`.
    """

    def __init__(self, lm: LanguageModel, prompts: Layout | Sequence[Layout], signals: Sequence[str] = ()) -> None:
        self.lm = lm
        self.online = OnlineTrace(lm, prompts, signals)
        self._written = [_Written(Spelling(lm.tokenizer)) for _ in range(self.online.size)]

    @property
    def size(self) -> int:
        """Number of sequences."""
        return self.online.size

    @property
    def tokens(self) -> int:
        """Tokens fed to each sequence, those after its end included."""
        return self.online.tokens

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that are computed."""
        return self.online.signals

    @property
    def logits(self) -> Tensor:
        """(sequence, vocabulary) logits of the next token."""
        return self.online.logits

    @property
    def ahead(self) -> Mapping[str, Tensor]:
        """Signals of the next token that are known before it is chosen, (sequence, ...)."""
        return self.online.ahead

    def available(self, token: int) -> frozenset[str]:
        """Return which of the signals are known of a token, 0-based, as things stand."""
        return self.online.available(token)

    def feed(self, ids: Tensor | Sequence[Sequence[int]]) -> None:
        """Let every sequence grow by the same number of tokens; those that have ended take them without effect.

        Args:
            ids: (sequence, token).

        Raises:
            InputError: If the shape is another, or all have ended.
            ContextTooLongError: If a sequence no longer fits the model; nothing has been fed then.
        """
        self.check_open()
        self.online.feed(ids)
        rows = ids.tolist() if isinstance(ids, Tensor) else ids
        for item, row in zip(self._written, rows, strict=True):
            if item.reason is None:
                for token in row:
                    item.spelling.add(token)
                item.length, item.characters = self.tokens, len(item.spelling.text)

    def check_open(self) -> None:
        """Refuse to write on where all sequences have ended.

        Raises:
            InputError: If they have.
        """
        if all(item.reason is not None for item in self._written):
            raise InputError("All sequences of this session have ended. Fork before the end to write on.")

    def _at(self, sequence: int) -> _Written:
        if not is_index(sequence, self.size):
            raise InputError(f"Sequences are numbered 0 to {self.size - 1}. Got {sequence!r} instead.")
        return self._written[sequence]

    def end(self, sequence: int, reason: Reason, characters: int | None = None) -> None:
        """Let a sequence end.

        Args:
            sequence: Which one.
            reason: ``end`` (the model ended it), ``stop`` (a stop string) or ``length`` (the budget).
            characters: Where its text ends; tokens that begin there or later are not part of it. By default all is.
        """
        item = self._at(sequence)
        check_choice("end", "reason", reason, get_args(Reason))
        item.spelling.finish()
        item.reason, item.ended_at = reason, self.tokens
        item.characters = len(item.spelling.text) if characters is None else characters
        if characters is not None:
            item.length = sum(1 for start, _ in item.spelling.offsets[: item.length] if start < characters)

    def ended(self, sequence: int) -> Reason | None:
        """Return why a sequence has ended; ``None`` while it has not."""
        return self._at(sequence).reason

    def length(self, sequence: int) -> int:
        """Return how many tokens a sequence has."""
        return self._at(sequence).length

    def ids(self, sequence: int) -> list[int]:
        """Return the token ids of a sequence, without what ended it."""
        return self.online.ids(sequence)[: self.length(sequence)]

    def text(self, sequence: int) -> str:
        """Return the text of a sequence: whole characters only."""
        item = self._at(sequence)
        return item.spelling.text[: item.characters]

    def offsets(self, sequence: int) -> list[tuple[int, int]]:
        """Return the [start, end) code points of the tokens whose characters are whole."""
        item = self._at(sequence)
        return [(s, min(e, item.characters)) for s, e in item.spelling.offsets[: item.length]]

    def trace(self, sequence: int) -> Trace:
        """Return the trace of a sequence as written so far: what the engine would return for the finished text.

        Raises:
            NonFiniteError: If the model produced NaN or infinity.
        """
        length = self.length(sequence)
        if self.lm.tokenizer is None:
            return self.online.trace(sequence, length)
        item = self._at(sequence)
        spelling = item.spelling.copy()
        spelling.finish()  # a character that is not whole yet is shown as it stands
        text = spelling.text if item.reason is None else self.text(sequence)
        return self.online.trace(sequence, length, text, as_offsets(spelling.offsets[:length], len(text)))

    def fork(self, copies: int = 1, sequences: Sequence[int] | None = None) -> Session:
        """Return a session of candidates that share what was read so far; this one stays as it is.

        Args:
            copies: How often each sequence is taken; the copies of one stand side by side.
            sequences: Which ones; by default all.
        """
        chosen = range(self.size) if sequences is None else sequences
        other = copy.copy(self)
        other.online = self.online.fork(copies, sequences)
        other._written = [self._written[i].copy() for i in chosen for _ in range(copies)]
        return other

    def keep(self, sequences: int | Sequence[int]) -> None:
        """Keep some sequences, in this order, and let the others and their caches go."""
        self.online.keep(sequences)
        chosen = [sequences] if isinstance(sequences, int) else sequences
        self._written = [self._written[i].copy() for i in chosen]

    def roll_back(self, count: int) -> None:
        """Take the last tokens of every sequence back; an end that lay in them is undone.

        Raises:
            InputError: If there are not so many, or the model's cache cannot be taken back: fork before feeding.
        """
        self.online.roll_back(count)
        for sequence, item in enumerate(self._written):
            if item.reason is not None and item.ended_at <= self.tokens:
                continue
            spelling = Spelling(self.lm.tokenizer)
            for token in self.online.ids(sequence):
                spelling.add(token)
            self._written[sequence] = _Written(spelling, length=self.tokens, characters=len(spelling.text))

    def longest(self) -> int:
        """Return the positions that the longest sequence takes, prompt included."""
        return max(self.online.prompt(i).prompt_length for i in range(self.size)) + self.tokens
