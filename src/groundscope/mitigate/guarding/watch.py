"""The judge behind a guard: which sentences are complete, what they score, what may be shown."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from groundscope.assembly import Assembler
from groundscope.errors import GroundscopeError
from groundscope.example import Example
from groundscope.mitigate.guarding.events import Event, Finished, Released, Scored, Stopped, Withheld
from groundscope.mitigate.guarding.listening import Listener
from groundscope.reading import nothing_to_read
from groundscope.scope import Scope
from groundscope.text.refusals import is_refusal
from groundscope.text.sentences import split_sentences
from groundscope.text.spans import aggregate_units
from groundscope.text.visible import content_of
from groundscope.verdict import Threshold, Verdict

Mode = Literal["audit", "withhold", "stop"]
Ranges = list[tuple[int, int]]
# Stands for each character of withheld text in the last verdict.
_BLOCK = "\N{FULL BLOCK}"
_WHOLE_WORD = re.compile(r"\w\W")


class Watch:
    """All that a guard knows of a text while it comes.

    Args:
        listener: What reads it.
        scope: Detector and thresholds.
        example: Question and passages; its response is empty.
        mode: As in :func:`groundscope.mitigate.guarding.guard.guard`.
        threshold: Sentences whose score is not below this are flagged.

    Attributes:
        flagged: How many sentences were flagged.
        last: The verdict on the whole, once there is one.
    """

    def __init__(self, listener: Listener, scope: Scope, example: Example, mode: Mode, threshold: float) -> None:
        self.flagged = 0
        self.last: Verdict | None = None
        self._listener = listener
        self._scope = scope
        self._example = example
        self._mode = mode
        self._threshold = threshold
        self._assembler = Assembler(scope.detector, scope.lm.name)
        self._unread = False
        self._done = 0
        self._withheld: Ranges = []

    @property
    def unread(self) -> bool:
        """Whether a piece waits to be read."""
        return self._unread

    def hear(self, piece: object) -> list[Event]:
        """Take a piece; nothing is read yet."""
        text = self._listener.hear(piece)
        start = len(self._listener.text) - len(text)
        # What had been written before the guard came is not held against what it hears.
        self._done = max(self._done, self._listener.past)
        self._unread = bool(text)
        return [Released(text, start, start + len(text), None)] if text and self._mode == "audit" else []

    def read(self) -> list[Event]:
        """Read what was heard, and judge the sentences that are complete."""
        self._unread = False
        self._listener.read()
        sentences = self._complete()
        return list(self._judged(sentences, None)) if sentences else []

    def finish(self) -> list[Event]:
        """Read and judge the rest; the last event is :class:`Finished` or :class:`Stopped`."""
        listener, shown = self._listener, len(self._listener.text)
        listener.finish()
        text, events = listener.text, list[Event]()
        if self._mode == "audit" and len(text) > shown:
            events.append(Released(text[shown:], shown, len(text), None))
        verdict = self._whole(text)
        if text:
            events += self._judged(self._left(text), verdict)
            if events and isinstance(events[-1], Stopped):
                return events
        if self._mode != "audit" and self._done < len(text):
            events.append(self._released(len(text), None))
        self.last = _without(verdict, self._withheld)
        return [*events, Finished(self.last)]

    def _left(self, text: str) -> Ranges:
        return [(max(start, self._done), end) for start, end in split_sentences(text) if end > self._done]

    def _complete(self) -> Ranges:
        """Sentences that have been read, and behind which a whole word of the next one has come."""
        text = self._listener.text
        found = self._left(text[: self._listener.settled])
        # Whether a full stop ends a sentence depends on the word behind it.
        sure = found and _WHOLE_WORD.search(text, found[-1][0])
        return found[:-1] if sure else found[:-2]

    def _whole(self, text: str) -> Verdict:
        example = dataclasses.replace(self._example, response=text)
        unread = nothing_to_read(example)
        if unread is not None:
            return self._assembler.unscored(example, unread.outcome, unread.message)
        return self._assembler.verdict(example, [self._listener.trace()], lambda: self._scope.threshold)

    def _so_far(self) -> Verdict:
        trace = self._listener.trace()
        example = dataclasses.replace(self._example, response=trace.layout.response or "")
        return self._assembler.verdict(example, [trace], Threshold(self._threshold, self._threshold, "the guard"))

    def _scores(self, ranges: Sequence[tuple[int, int]], verdict: Verdict) -> list[float | None]:
        """Mean token score of each range."""
        if verdict.outcome == "failed":
            raise GroundscopeError(verdict.message)
        offsets = [(token.start, token.end) for token in verdict.tokens]
        return aggregate_units(ranges, offsets, np.array([token.score for token in verdict.tokens]))

    def _judged(self, sentences: Ranges, verdict: Verdict | None) -> Iterator[Event]:
        text = self._listener.text
        claims = [_claims(text[start:end]) for start, end in sentences]
        if any(claims):
            scores = self._scores(sentences, verdict or self._so_far())
        for number, (start, end) in enumerate(sentences):
            score = scores[number] if claims[number] else None
            flagged = claims[number] and (score is None or score >= self._threshold)
            self.flagged += flagged
            if self._mode == "audit":
                self._done = end
                yield Scored(start, end, score, flagged)
            elif not flagged:
                yield self._released(end, score)
            elif self._mode == "withhold":
                self._withheld.append((self._done, end))
                self._done = end
                yield Withheld(start, end, score)
            else:
                yield Stopped(self._reason(score), start, score)
                return

    def _reason(self, score: float | None) -> str:
        if score is None:
            return "No token of the sentence could be scored."
        name = self._scope.detector.name
        return f"The {name} score of the sentence, {score:.4g}, is not below {self._threshold:.4g}."

    def _released(self, end: int, score: float | None) -> Released:
        start, self._done = self._done, end
        return Released(self._listener.text[start:end], start, end, score)


def _claims(sentence: str) -> bool:
    return content_of(sentence) == "words" and not is_refusal(sentence)


def _without(verdict: Verdict, hidden: Sequence[tuple[int, int]]) -> Verdict:
    """The verdict with blocks for hidden characters."""
    if not hidden:
        return verdict
    text = verdict.response
    for start, end in hidden:
        text = text[:start] + _BLOCK * (end - start) + text[end:]

    def shown(items: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(dataclasses.replace(item, text=text[item.start : item.end]) for item in items)

    def without_quotes(items: Sequence[Any]) -> tuple[Any, ...]:
        # Reasons quote the text, and overlap with a passage tells of it.
        return tuple(
            dataclasses.replace(item, reasons=(), nearest=None)
            if any(start < item.end and item.start < end for start, end in hidden)
            else item
            for item in shown(items)
        )

    return dataclasses.replace(
        verdict,
        response=text,
        tokens=shown(verdict.tokens),
        spans=without_quotes(verdict.spans),
        sentences=without_quotes(verdict.sentences),
    )
