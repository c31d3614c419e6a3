"""A guard for texts that stream: it holds, scores, releases or stops, sentence by sentence.

What is guarded is written here (the tokens of :func:`groundscope.mitigate.writing.generate.generate`) or comes from
elsewhere as text; the latter is read by the scope's model as it comes, each token once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from groundscope.errors import InputError, check_choice, is_finite
from groundscope.example import Example
from groundscope.mitigate.guarding.events import Event, Stopped
from groundscope.mitigate.guarding.listening import Own, Proxy
from groundscope.mitigate.guarding.watch import Mode, Watch
from groundscope.mitigate.writing.generate import Token
from groundscope.mitigate.writing.judging import online_signals
from groundscope.mitigate.writing.session import Session
from groundscope.scope import Scope
from groundscope.text.visible import content_of

_log = logging.getLogger(__name__)

State = Literal["open", "finished", "stopped", "failed", "closed"]


class Guard(Iterator[Event]):
    """Events of a guarded stream; made by :func:`guard` and :func:`guard_session`.

    An error of the stream, or of the reading, is raised by ``next`` and ends it: no :class:`Finished` comes, and
    :attr:`clean` stays false. Once it has ended, for whatever reason, it holds no text but what is released.

    Attributes:
        state: ``open``; ``finished``, ``stopped``, ``failed`` (an error) or ``closed`` (by the caller).
        flagged: How many sentences were flagged so far.
        clean: Whether the stream came to its end, no sentence was flagged, and the whole was scored and is not flagged.
    """

    def __init__(self, pieces: Iterable[object], watch: Watch) -> None:
        self.state: State = "open"
        self.flagged = 0
        self.clean = False
        self._source: tuple[Iterator[object], Watch] | None = (iter(pieces), watch)
        self._events: deque[Event] = deque()

    def __next__(self) -> Event:
        while not self._events:
            if self._source is None:
                raise StopIteration
            try:
                self._advance(*self._source)
            except BaseException:
                self._end("failed")
                self._events.clear()
                raise
        return self._events.popleft()

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the stream and all that is known of it go; the source is closed, where it can be."""
        self._events.clear()
        if self._source is not None:
            self._end("closed")

    def _advance(self, pieces: Iterator[object], watch: Watch) -> None:
        if watch.unread:
            self._events += watch.read()
        else:
            try:
                piece = next(pieces)
            except StopIteration:
                self._events += watch.finish()
            else:
                self._events += watch.hear(piece)
        self.flagged = watch.flagged
        if watch.last is not None:
            self.clean = watch.flagged == 0 and watch.last.flagged is False
            self._end("finished")
        elif self._events and isinstance(self._events[-1], Stopped):
            self._end("stopped")

    def _end(self, state: State) -> None:
        source, self._source = self._source, None
        self.state = state
        close = getattr(source[0], "close", None) if source is not None else None
        if not callable(close):
            return
        try:
            close()
        except Exception:
            if state == "closed":  # asked for, and nothing else is lost
                raise
            _log.warning("The source of a guarded text failed to close.", exc_info=True)


def guard(
    pieces: Iterable[str],
    scope: Scope,
    question: str = "",
    passages: Sequence[str] | str = (),
    *,
    mode: Mode = "withhold",
    threshold: float | None = None,
    evidence: bool = True,
) -> Guard:
    """Guard a text that comes in pieces from elsewhere.

    The text is cut into the tokens that it has as a whole, wherever the pieces end, so that the last verdict is that
    of :meth:`groundscope.scope.Scope.score` on the whole text. A detector that compares with random documents needs
    them before there is a response: these are drawn for the empty one, and the verdict says which.

    - ``audit``: every piece is released at once; scores of sentences follow.
    - ``withhold``: a sentence is released once it is scored below the threshold; others never are.
    - ``stop``: the same, and the first sentence that is not below the threshold ends the stream.

    A sentence is scored when the first word of the next one has come; its score is the mean over its tokens, as in a
    verdict. What claims nothing (marks, a refusal to answer) is released unscored.

    Args:
        pieces: The text, cut anywhere; read as events are asked for.
        scope: Model, detector, template and thresholds.
        question: The question.
        passages: The passages.
        mode: See above.
        threshold: Sentences at or above it are flagged; by default the scope's for responses.
        evidence: Whether spans of the last verdict say which passages the model looked at.

    Raises:
        InputError: At once, if the detector reads a signal that cannot be had while a text comes (the message names
            it), there is no passage to check against, or an argument is not usable.
        ContextTooLongError: If the prompt does not fit the model; while reading, if the text does not.
        NonFiniteError: While reading, if the model produces NaN or infinity.
    """
    if isinstance(pieces, (str, bytes)) or not isinstance(pieces, Iterable):
        raise InputError(
            f"The 'pieces' parameter of guard must be an iterable of strings. Got a {type(pieces).__name__} instead."
        )
    _check_scope("guard", scope)
    check_choice("guard", "mode", mode, ("audit", "withhold", "stop"))
    wanted = list(online_signals(scope.detector))
    example = _example(question, passages)
    line = _line(scope, threshold)
    if evidence and "attention" not in scope.lm.anatomy.problems:
        wanted = list(dict.fromkeys([*wanted, "passage_attention"]))
    prompt = scope.reader.prompt(example, "A text that is still coming")
    return Guard(pieces, Watch(Proxy(scope.lm, prompt, wanted), scope, example, mode, line))


def guard_session(
    tokens: Iterable[Token],
    session: Session,
    scope: Scope,
    question: str = "",
    *,
    sequence: int = 0,
    mode: Mode = "withhold",
    threshold: float | None = None,
) -> Guard:
    """Guard what a session writes; nothing is read twice.

    Args:
        tokens: Tokens of the session, as :func:`groundscope.mitigate.writing.generate.generate` yields them.
        session: The session; it computes what the scope's detector reads.
        scope: Detector and thresholds, with the session's model.
        question: The question, for the verdict.
        sequence: Which of the session's sequences; the tokens of others are passed over.
        mode: As in :func:`guard`.
        threshold: As in :func:`guard`.

    Raises:
        InputError: At once, if the session lacks a signal of the detector, belongs to another model, or an argument is
            not usable.
    """
    if not isinstance(session, Session):
        raise InputError(
            f"The 'session' parameter of guard_session must be a Session. Got {type(session).__name__} instead."
        )
    _check_scope("guard_session", scope)
    check_choice("guard_session", "mode", mode, ("audit", "withhold", "stop"))
    missing = [name for name in online_signals(scope.detector) if name not in session.signals]
    if missing:
        raise InputError(
            f"The detector {scope.detector.name!r} reads {missing[0]!r}, which this session does not compute. "
            f"Make it with Session(lm, prompt, {list(scope.detector.signals)!r})."
        )
    if session.lm is not scope.lm:
        raise InputError(
            f"The session writes with {session.lm.name!r} and the scope reads with {scope.lm.name!r}; "
            "give both the same LanguageModel."
        )
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence < session.size:
        raise InputError(
            f"The 'sequence' parameter of guard_session must be in the range [0, {session.size - 1}]. "
            f"Got {sequence!r} instead."
        )
    example = _example(question, session.online.prompt(sequence).passage_texts)
    return Guard(tokens, Watch(Own(session, sequence), scope, example, mode, _line(scope, threshold)))


def _check_scope(owner: str, scope: object) -> None:
    if not isinstance(scope, Scope):
        raise InputError(f"The 'scope' parameter of {owner} must be a Scope. Got {type(scope).__name__} instead.")


def _example(question: str, passages: Sequence[str] | str) -> Example:
    texts = (passages,) if isinstance(passages, str) else passages
    example = Example(question=question, passages=texts, response="")  # type: ignore[arg-type]
    if all(content_of(passage) == "nothing" for passage in example.passages):
        raise InputError(
            "There is no passage to check the text against. Give passages, or let the text pass unguarded."
        )
    return example


def _line(scope: Scope, threshold: float | None) -> float:
    if threshold is None:
        return scope.threshold.response
    if not is_finite(threshold):
        raise InputError(f"The 'threshold' parameter of guard must be a finite number. Got {threshold!r} instead.")
    return float(threshold)
