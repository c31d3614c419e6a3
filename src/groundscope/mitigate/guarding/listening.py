"""Texts that come in pieces, read as they come: what a model wrote elsewhere, and what it writes here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from groundscope.errors import ContextTooLongError, InputError, LayoutError
from groundscope.example import check_text
from groundscope.lm.prompt.layout import Layout
from groundscope.lm.prompt.offsets import Offsets, encode
from groundscope.mitigate.writing.generate import Token
from groundscope.mitigate.writing.session import Session
from groundscope.trace.online.online_trace import OnlineTrace
from groundscope.trace.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from groundscope.lm.language_model import LanguageModel

# Tokens at the end that may still change where there is no space to cut at.
_HELD = 16


class Listener(Protocol):
    """Takes pieces of a text and can say how it reads so far."""

    text: str
    past: int

    @property
    def settled(self) -> int:
        """Characters whose tokens have been read; more are to come behind them, or the text has ended."""

    def hear(self, piece: object) -> str:
        """Take a piece; returns its text. Nothing is read yet."""

    def read(self) -> None:
        """Read what can be read of the pieces so far."""

    def finish(self) -> None:
        """Read the rest: no piece follows."""

    def trace(self) -> Trace:
        """Return the trace of what has been read."""


class Proxy:
    """A foreign text, read by a model that did not write it.

    The text is cut into the tokens that it has as a whole. Tokens wait until what follows can no longer change them:
    until a space follows their word, or, in scripts without spaces, until enough others follow. Should a token
    change all the same, it is taken back and what follows it is read again.

    Args:
        lm: The model that reads.
        prompt: What it reads before the text.
        signals: Names of signals.

    Attributes:
        text: The text so far.
        past: 0: all of it is heard.
    """

    past = 0

    def __init__(self, lm: LanguageModel, prompt: Layout, signals: Sequence[str]) -> None:
        self.text = ""
        self._lm = lm
        self._prompt = prompt
        self._online = OnlineTrace(lm, prompt, signals)
        self._ids: list[int] = []
        self._offsets: Offsets = np.zeros((0, 2), dtype=np.int64)
        self._cut = self._tried = 0

    @property
    def settled(self) -> int:
        """Characters whose tokens have been read."""
        return int(self._offsets[-1, 1]) if len(self._offsets) else 0

    def hear(self, piece: object) -> str:
        """Take a piece.

        Raises:
            InputError: If it is no text.
        """
        if not isinstance(piece, str):
            raise InputError(f"The pieces of a guarded text must be strings. Got {type(piece).__name__} instead.")
        check_text("piece", piece)
        self.text += piece
        return piece

    def read(self) -> None:
        """Read the tokens that will stay."""
        cut = _last_word_end(self.text, self._cut)
        try:
            if cut > self._cut:
                self._cut = self._tried = cut
                self._take(*self._encoded(self.text[:cut]))
            elif len(self.text) - self._tried > _HELD:
                self._tried = len(self.text)
                ids, offsets = self._encoded(self.text)
                if len(ids) - len(self._ids) > _HELD:
                    self._take(ids[:-_HELD], offsets[:-_HELD])
        except ContextTooLongError:
            raise
        except LayoutError:
            # What has come so far has no tokens of its own; what follows may complete it.
            return

    def finish(self) -> None:
        """Read all of the text."""
        self._take(*self._encoded(self.text))

    def trace(self) -> Trace:
        """Return the trace of the tokens read, over the text that they spell."""
        return self._online.trace(0, None, self.text[: self.settled], self._offsets)

    def _encoded(self, text: str) -> tuple[list[int], Offsets]:
        return encode(self._lm.tokenizer, text, [(0, len(text))])

    def _take(self, ids: list[int], offsets: Offsets) -> None:
        same = next((i for i, pair in enumerate(zip(ids, self._ids, strict=False)) if pair[0] != pair[1]), None)
        kept = min(len(ids), len(self._ids)) if same is None else same
        if kept < len(self._ids):
            self._back_to(kept)
        if len(ids) > kept:
            self._online.feed([ids[kept:]])
        self._ids, self._offsets = ids, offsets

    def _back_to(self, kept: int) -> None:
        try:
            self._online.roll_back(len(self._ids) - kept)
        except InputError:
            # A window has moved on: what stays is read once more.
            online = OnlineTrace(self._lm, self._prompt, self._online.signals)
            if kept:
                online.feed([self._ids[:kept]])
            self._online = online
        self._ids = self._ids[:kept]


class Own:
    """A text that a session writes; its signals are those of the writing.

    Args:
        session: The session.
        sequence: Which of its sequences.

    Attributes:
        text: What was written so far.
        past: Characters of it that had been written before the first token was heard.
    """

    def __init__(self, session: Session, sequence: int) -> None:
        self.text = ""
        self.past = 0
        self._next: int | None = None
        self._session = session
        self._sequence = sequence

    @property
    def settled(self) -> int:
        """Characters whose tokens have been read: a token comes after it was read."""
        return len(self.text)

    def hear(self, piece: object) -> str:
        """Take a token; those of other sequences say nothing.

        Raises:
            InputError: If it is no token, or not the session's next one.
        """
        if not isinstance(piece, Token):
            raise InputError(f"A guarded session's pieces must be Tokens. Got {type(piece).__name__} instead.")
        if piece.sequence != self._sequence:
            return ""
        length = self._session.length(self._sequence)
        wanted = piece.number if self._next is None else self._next
        if piece.number != wanted or piece.number >= length:
            raise InputError(
                f"A guarded session's tokens must all come, in order, and be its own. Got token {piece.number} where "
                f"{'one of ' if self._next is None else ''}{min(wanted, length)} was expected; guard the same session "
                "that writes."
            )
        if self._next is None and piece.number > 0:
            written = self._session.trace(self._sequence).layout
            offsets = written.response_offsets
            self.past = 0 if offsets is None else int(offsets[piece.number][0])
            self.text = (written.response or "")[: self.past]
        self._next = piece.number + 1
        self.text += piece.piece
        return piece.piece

    def read(self) -> None:
        """Nothing is left to be read."""

    def finish(self) -> None:
        """Take what the last tokens show that wait for the rest of a character."""
        self.text = self._session.trace(self._sequence).layout.response or ""

    def trace(self) -> Trace:
        """Return the session's trace of the sequence."""
        return self._session.trace(self._sequence)


def _last_word_end(text: str, start: int) -> int:
    """Where the last space lies that ends a word, behind ``start``; ``start`` if there is none."""
    place = text.rfind(" ", start)
    while place > start and text[place - 1].isspace():
        place = text.rfind(" ", start, place)
    return place if place > start else start
