"""Plain generation on a session: greedy or sampled, token by token, with the signals of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from groundscope.errors import ContextTooLongError, InputError, check_count
from groundscope.lm.running import end_ids
from groundscope.mitigate.writing.sampler import Draws, Sampler
from groundscope.mitigate.writing.session import Session
from groundscope.mitigate.writing.spelling import StopStrings


@dataclass(frozen=True, eq=False)
class Token:
    """One token that has been written.

    Attributes:
        sequence: Which sequence of the session it belongs to.
        number: Its number in the sequence, 0-based.
        id: Its id.
        piece: The characters that can be read since it came; empty while it waits for the rest of a character.
        signals: The session's signals of this token, without the token axis.
    """

    sequence: int
    number: int
    id: int
    piece: str
    signals: Mapping[str, npt.NDArray[np.float32]]


class Steps(Protocol):
    """How a session takes a step; what changes a model while it writes takes it otherwise."""

    def logits(self, session: Session) -> Tensor:
        """Return the (sequence, vocabulary) logits that the next tokens are chosen from; called once per step."""

    def feed(self, session: Session, ids: Tensor) -> None:
        """Feed the (sequence, 1) tokens that were chosen."""


class _PlainSteps:
    def logits(self, session: Session) -> Tensor:
        return session.logits

    def feed(self, session: Session, ids: Tensor) -> None:
        session.feed(ids)


def generate(
    session: Session,
    sampler: Sampler | None = None,
    max_new_tokens: int = 256,
    *,
    stop: Sequence[str] | StopStrings = (),
    draws: Draws | None = None,
    steps: Steps | None = None,
) -> Iterator[Token]:
    """Write on, and yield the tokens once they are certain to stay.

    A sequence ends where the model ends it, or before the first stop string in its text; then
    ``session.ended(sequence)`` says so, and the others go on. With the budget spent a sequence has not ended: more may
    be written later. Tokens that may be the beginning of a stop string are yielded when they turn out not to be. The
    loop may be left at any time: no token is half fed, and the model is as it was.

    Args:
        session: What to write on.
        sampler: How tokens are chosen; by default the likeliest.
        max_new_tokens: At most so many tokens per sequence, those of a stop string included.
        stop: Strings that end an answer.
        draws: Where the random numbers come from, to go on with those of an earlier call.
        steps: How a step is taken; by default the model is left to itself.

    Raises:
        ContextTooLongError: At once, if the budget does not fit the model.
        InputError: If an argument is not usable, or all sequences have ended.
        NonFiniteError: If the model produces NaN or infinity.
    """
    check_count("generate", "max_new_tokens", max_new_tokens)
    if sampler is not None and not isinstance(sampler, Sampler):
        raise InputError(f"The 'sampler' parameter of generate must be a Sampler. Got {sampler!r} instead.")
    session.check_open()
    limit = session.lm.max_length
    if limit is not None and session.longest() + max_new_tokens > limit:
        raise ContextTooLongError(
            session.longest(), max_new_tokens, limit, "Shorten the passages, or lower max_new_tokens."
        )
    stops = stop if isinstance(stop, StopStrings) else StopStrings(stop)
    chosen = draws or (sampler or Sampler()).draws(session.size)
    return _written(session, max_new_tokens, stops, chosen, steps or _PlainSteps())


def _written(session: Session, budget: int, stops: StopStrings, draws: Draws, steps: Steps) -> Iterator[Token]:
    ends = frozenset(end_ids(session.lm))
    shown = [session.tokens] * session.size
    for _ in range(budget):
        chosen = draws.choose(steps.logits(session))
        end_where(session, chosen, ends)
        if not _going(session):
            break
        steps.feed(session, chosen[:, None])
        end_at_stops(session, stops)
        for sequence in range(session.size):
            yield from _certain(session, sequence, shown, stops)
        if not _going(session):
            break
    for sequence in range(session.size):
        yield from _certain(session, sequence, shown, None)


def end_where(session: Session, chosen: Tensor, ends: frozenset[int]) -> None:
    """Let the sequences end whose next token is one that ends an answer; it is not fed."""
    for sequence, number in enumerate(chosen.tolist()):
        if number in ends and session.ended(sequence) is None:
            session.end(sequence, "end")


def end_at_stops(session: Session, stops: StopStrings) -> None:
    """Let the sequences end whose text holds a stop string, before it."""
    for sequence in range(session.size):
        if session.ended(sequence) is None:
            place = stops.find(session.text(sequence))
            if place is not None:
                session.end(sequence, "stop", place)


def end_at_budget(session: Session) -> None:
    """Let the sequences end whose budget is spent; half a character at the end is not part of the answer."""
    for sequence in range(session.size):
        if session.ended(sequence) is None:
            has_text = session.lm.tokenizer is not None
            session.end(sequence, "length", len(session.text(sequence)) if has_text else None)


def _going(session: Session) -> bool:
    return any(session.ended(sequence) is None for sequence in range(session.size))


def _certain(session: Session, sequence: int, shown: list[int], stops: StopStrings | None) -> Iterator[Token]:
    """Tokens of a sequence that have not been yielded and will stay; with ``None`` all there are."""
    text, offsets = session.text(sequence), session.offsets(sequence)
    everything = stops is None or session.ended(sequence) is not None
    sure = len(text) if stops is None or everything else len(text) - stops.held(text)
    ids = session.ids(sequence)
    while shown[sequence] < len(ids):
        number = shown[sequence]
        if number < len(offsets):
            start, end = offsets[number]
            if end > sure:
                return
            # Of tokens that are pieces of one character, the last one shows it.
            more = number + 1 < len(offsets) and offsets[number + 1] == offsets[number]
            piece = "" if more else text[start:end]
        elif everything:
            piece = ""
        else:
            return
        shown[sequence] += 1
        values = {name: session.online.values(name, number, number + 1) for name in session.signals}
        yield Token(
            sequence,
            number,
            ids[number],
            piece,
            {name: value[sequence, 0].cpu().numpy().astype(np.float32, copy=False) for name, value in values.items()},
        )
