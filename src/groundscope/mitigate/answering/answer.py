"""An answer from question and passages: laid out, written by a strategy, checked, and abstained from if asked to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from groundscope.assembly import Assembler
from groundscope.detectors.base import Detector
from groundscope.errors import ContextTooLongError, InputError
from groundscope.example import Example
from groundscope.lm.prompt.layout import Layout
from groundscope.mitigate.answering.abstain import Abstention, abstain
from groundscope.mitigate.answering.drafts import Drafts, OnDraft
from groundscope.mitigate.answering.options import Writing
from groundscope.mitigate.answering.ways import WAYS, extra_signals
from groundscope.mitigate.writing.decisions import DecisionLog
from groundscope.mitigate.writing.judging import is_online
from groundscope.mitigate.writing.session import Reason, Session
from groundscope.reading import Reader, Unread, nothing_to_read
from groundscope.text.visible import content_of
from groundscope.verdict import Threshold, Verdict

OnText = Callable[[str], object]


@dataclass(frozen=True, eq=False)
class Generation:
    """An answer, and how it came about.

    Attributes:
        text: What to show.
        verdict: On the answer as written, which is ``verdict.response``.
        log: The decisions; :func:`groundscope.mitigate.writing.decisions.replay` follows them.
        strategy: How it was written.
        ended: Why it ended: ``end``, ``stop`` or ``length``.
        abstention: What was refused or removed, if asked to abstain.
        verdicts: For ``best-of-n``, those of all answers.
    """

    text: str
    verdict: Verdict
    log: DecisionLog
    strategy: str
    ended: Reason | None
    abstention: Abstention | None = None
    verdicts: tuple[Verdict, ...] = ()

    def to_dict(self, include_context: bool = True) -> dict[str, Any]:
        """Return it as plain JSON values.

        Args:
            include_context: Whether to repeat question and passages.
        """
        return {
            "text": self.text,
            "strategy": self.strategy,
            "ended": self.ended,
            "abstention": None if self.abstention is None else self.abstention.to_dict(),
            "verdict": self.verdict.to_dict(include_context),
            "log": self.log.to_dict(),
        }


@dataclass(frozen=True, eq=False)
class Writer:
    """Writes answers with one model and checks them with one detector.

    Attributes:
        reader: How prompts are laid out, and how finished answers are read for detectors that need them so.
        detector: What guides, chooses and judges.
        threshold: Where the lines are drawn, asked before anything is written.
    """

    reader: Reader
    detector: Detector
    threshold: Callable[[], Threshold]

    def write(
        self,
        question: str,
        passages: Sequence[str] | str,
        writing: Writing,
        on_text: OnText | None = None,
        on_draft: OnDraft | None = None,
    ) -> Generation:
        """Write one answer.

        The verdict comes from the signals that were computed on the way, where the detector's can be had so; else
        the finished answer is read.

        Args:
            question: The question; may be empty.
            passages: The passages.
            writing: How.
            on_text: Is given the answer's pieces as soon as they are certain to stay.
            on_draft: Is given a verdict on what is written so far, whenever some words have come; only where the
                detector's signals can be had on the way.

        Raises:
            InputError: If there is no passage, or the detector cannot guide; nothing has been written then.
            ContextTooLongError: If prompt and budget do not fit the model.
        """
        texts = (passages,) if isinstance(passages, str) else passages
        example = Example(question=question, passages=texts, response="")  # type: ignore[arg-type]
        if all(content_of(passage) == "nothing" for passage in example.passages):
            raise InputError("There is no passage to write an answer from. Give at least one that holds text.")
        for name, listener in (("on_text", on_text), ("on_draft", on_draft)):
            if listener is not None and not callable(listener):
                raise InputError(f"The {name!r} parameter of generate takes a function. Got {listener!r} instead.")
        watched = "on_text" if on_text is not None else "on_draft"
        if writing.abstain is not None and (on_text is not None or on_draft is not None):
            raise InputError(
                f"The {watched!r} parameter of generate shows an answer before it is checked. "
                "Leave it out, or do without 'abstain'."
            )
        online = is_online(self.detector)
        signals = dict.fromkeys(
            (*(self.reader.signals if online else ()), *extra_signals(writing.strategy, self.detector))
        )
        layout = self._layout(example, writing.max_new_tokens)
        session = Session(self.reader.lm, layout, tuple(signals))
        line = self.threshold()

        def judge(judged: Session, number: int, as_written: bool = online) -> Verdict:
            return self._verdict(replace(example, response=judged.text(number)), judged, number, as_written, line)

        drafts = Drafts(judge if online else None, on_draft)

        def on_piece(written: Session, piece: str) -> None:
            if on_text is not None:
                on_text(piece)
            drafts.add(written, piece)

        written = WAYS[writing.strategy](session, self.detector, writing, judge, on_piece)
        final = written.session
        verdict = written.verdict or judge(final, 0, online and not written.changed)
        abstention = None if writing.abstain is None else abstain(verdict, writing.abstain)
        text = final.text(0) if abstention is None else abstention.text
        return Generation(text, verdict, written.log, writing.strategy, final.ended(0), abstention, written.verdicts)

    def _layout(self, example: Example, budget: int) -> Layout:
        try:
            return self.reader.prompt(example, "An answer that is being written", reserve=budget)
        except ContextTooLongError as exc:
            advice = "Shorten the passages, lower max_new_tokens, or choose a model with a longer context."
            raise ContextTooLongError(exc.prompt_tokens, exc.response_tokens, exc.limit, advice) from exc

    def _verdict(self, example: Example, session: Session, number: int, online: bool, line: Threshold) -> Verdict:
        assembler = Assembler(self.detector, self.reader.lm.name)
        early = nothing_to_read(example)
        if early is None and online:
            trace = session.trace(number)
            # While the answer is written, its last character may not be whole yet.
            return assembler.verdict(replace(example, response=trace.layout.response or ""), [trace], line)
        result = early or self.reader.read([example])[0]
        if isinstance(result, Unread):
            return assembler.unscored(example, result.outcome, result.message)
        return assembler.verdict(example, result, line)


def write_answer(
    reader: Reader,
    detector: Detector,
    threshold: Callable[[], Threshold],
    question: str,
    passages: Sequence[str] | str,
    strategy: str,
    on_text: OnText | None,
    on_draft: OnDraft | None,
    options: dict[str, Any],
) -> Generation:
    """Write one answer; what is behind :meth:`groundscope.scope.Scope.generate`."""
    writing = Writing.of(strategy, options)
    return Writer(reader, detector, threshold).write(question, passages, writing, on_text, on_draft)
