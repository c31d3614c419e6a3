"""An answer from question and passages: laid out, written by a strategy, checked, and abstained from if asked to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, get_args

from groundscope.assembly import Assembler
from groundscope.detectors.base import Detector
from groundscope.errors import ContextTooLongError, InputError, UnknownNameError, check_choice, check_count
from groundscope.example import Example
from groundscope.lm.layout import Layout
from groundscope.mitigate.abstain import AbstainMode, Abstention, abstain
from groundscope.mitigate.best_of_n import Judge, best_of_n, candidate_of
from groundscope.mitigate.decisions import Decision, DecisionLog
from groundscope.mitigate.generate import end_at_budget, generate
from groundscope.mitigate.guided import BUDGET, Variant, guided
from groundscope.mitigate.judging import is_online, online_signals
from groundscope.mitigate.sampler import Sampler
from groundscope.mitigate.session import Reason, Session
from groundscope.mitigate.spelling import StopStrings
from groundscope.reading import Reader, Unread, nothing_to_read
from groundscope.text.visible import content_of
from groundscope.verdict import Threshold, Verdict

OnText = Callable[[str], object]
_DRAWING = ("temperature", "top_p", "top_k")
# Per strategy, the options that others do not know.
STRATEGIES: dict[str, tuple[str, ...]] = {
    "greedy": (),
    "sample": _DRAWING,
    "guided": (*_DRAWING, "candidates", "chunk", "variant"),
    "best-of-n": (*_DRAWING, "n"),
}


@dataclass(frozen=True)
class Writing:
    """How an answer is written.

    Attributes:
        strategy: ``greedy``, ``sample``, ``guided`` (:func:`groundscope.mitigate.guided.guided`) or ``best-of-n``
            (:func:`groundscope.mitigate.best_of_n.best_of_n`).
        max_new_tokens: At most so many tokens.
        stop: Strings that end the answer.
        seed: Of the draws.
        temperature: See :class:`groundscope.mitigate.sampler.Sampler`; by default 0.9, for the official variant 1.
        top_p: Likewise; by default 0.95, for the official variant 1.
        top_k: Likewise; by default 0.
        candidates: For ``guided``: continuations per chunk, by default 8.
        chunk: For ``guided``: tokens in a chunk, by default 8.
        variant: For ``guided``: ``paper`` (default) or ``official``.
        n: For ``best-of-n``: how many answers, by default 8.
        abstain: What to do with an answer above the threshold: ``refuse``, ``remove``, or nothing.

    Raises:
        InputError: If an option is not usable, or has no effect on the strategy.
        UnknownNameError: If there is no such strategy.
    """

    strategy: str = "greedy"
    max_new_tokens: int = BUDGET
    stop: Sequence[str] = ()
    seed: int = 0
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    candidates: int | None = None
    chunk: int | None = None
    variant: Variant | None = None
    n: int | None = None
    abstain: AbstainMode | None = None

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise UnknownNameError("strategy", self.strategy, STRATEGIES)
        for name in sorted({name for known in STRATEGIES.values() for name in known}):
            if getattr(self, name) is not None and name not in STRATEGIES[self.strategy]:
                users = ", ".join(repr(key) for key, known in STRATEGIES.items() if name in known)
                raise InputError(
                    f"The {name!r} parameter of generate has no effect with strategy={self.strategy!r}. "
                    f"Got {getattr(self, name)!r}; leave it out, or choose {users}."
                )
        for name in ("max_new_tokens", "candidates", "chunk", "n"):
            if getattr(self, name) is not None:
                check_count("generate", name, getattr(self, name))
        StopStrings(self.stop)
        check_choice("generate", "abstain", self.abstain, (None, *get_args(AbstainMode)))
        if self.temperature == 0:
            raise InputError(
                "The 'temperature' parameter of generate must be above 0 where tokens are drawn. Got 0 instead; "
                "strategy='greedy' takes the likeliest token."
            )
        self.sampler  # noqa: B018  checks its own numbers

    @classmethod
    def of(cls, strategy: str, options: dict[str, Any]) -> Writing:
        """Return the options, refusing unknown ones by name."""
        known = [item.name for item in fields(cls) if item.name != "strategy"]
        for name in options:
            if name not in known:
                raise UnknownNameError("parameter of generate", name, known)
        return cls(strategy, **options)

    @property
    def sampler(self) -> Sampler:
        """How tokens are chosen."""
        if self.strategy == "greedy":
            return Sampler(seed=self.seed)
        base = Sampler(1.0) if self.variant == "official" else Sampler(0.9, 0.95)
        given = {name: getattr(self, name) for name in _DRAWING if getattr(self, name) is not None}
        return replace(base, seed=self.seed, **given)


@dataclass(frozen=True, eq=False)
class Generation:
    """An answer, and how it came about.

    Attributes:
        text: What to show.
        verdict: On the answer as written, which is ``verdict.response``.
        log: The decisions; :func:`groundscope.mitigate.decisions.replay` follows them.
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
        self, question: str, passages: Sequence[str] | str, writing: Writing, on_text: OnText | None = None
    ) -> Generation:
        """Write one answer.

        The verdict comes from the signals that were computed on the way, where the detector's can be had so; else
        the finished answer is read.

        Args:
            question: The question; may be empty.
            passages: The passages.
            writing: How.
            on_text: Is given the answer's pieces as soon as they are certain to stay.

        Raises:
            InputError: If there is no passage, or the detector cannot guide; nothing has been written then.
            ContextTooLongError: If prompt and budget do not fit the model.
        """
        texts = (passages,) if isinstance(passages, str) else passages
        example = Example(question=question, passages=texts, response="")  # type: ignore[arg-type]
        if all(content_of(passage) == "nothing" for passage in example.passages):
            raise InputError("There is no passage to write an answer from. Give at least one that holds text.")
        if writing.abstain is not None and on_text is not None:
            raise InputError(
                "The 'on_text' parameter of generate shows an answer before it is checked. "
                "Leave it out, or do without 'abstain'."
            )
        online = is_online(self.detector)
        if writing.strategy == "guided":
            online_signals(self.detector)
        layout = self._layout(example, writing.max_new_tokens)
        session = Session(self.reader.lm, layout, self.reader.signals if online else ())
        line = self.threshold()

        def judge(judged: Session, number: int) -> Verdict:
            return self._verdict(replace(example, response=judged.text(number)), judged, number, online, line)

        written = _WAYS[writing.strategy](session, self.detector, writing, judge, on_text or _unseen)
        verdict, final = written.verdict or judge(written.session, 0), written.session
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
        result = early or ([session.trace(number)] if online else self.reader.read([example])[0])
        if isinstance(result, Unread):
            return assembler.unscored(example, result.outcome, result.message)
        return assembler.verdict(example, result, line)


@dataclass(frozen=True, eq=False)
class _Written:
    session: Session
    log: DecisionLog
    verdict: Verdict | None = None
    verdicts: tuple[Verdict, ...] = ()


def _unseen(_: str) -> None:
    """For answers that nobody watches."""


def _plain(session: Session, _: Detector, writing: Writing, judge: Judge, on_text: OnText) -> _Written:
    for token in generate(session, writing.sampler, writing.max_new_tokens, stop=writing.stop):
        if token.piece:
            on_text(token.piece)
    end_at_budget(session)
    decision = Decision(0, (candidate_of(session, 0),), 0, "only")
    log = DecisionLog(
        writing.strategy, session.lm.name, session.text(0), writing.sampler, writing.max_new_tokens,
        tuple(writing.stop), (decision,),
    )  # fmt: skip
    return _Written(session, log)


def _guided(session: Session, detector: Detector, writing: Writing, judge: Judge, on_text: OnText) -> _Written:
    options: dict[str, Any] = {
        name: getattr(writing, name)
        for name in ("candidates", "chunk", "variant")
        if getattr(writing, name) is not None
    }
    answer = guided(
        session, detector, sampler=writing.sampler, max_new_tokens=writing.max_new_tokens, stop=writing.stop, **options
    )
    for step in answer:
        if step.piece:
            on_text(step.piece)
    return _Written(answer.session, answer.log)


def _best_of_n(session: Session, _: Detector, writing: Writing, judge: Judge, on_text: OnText) -> _Written:
    options = {} if writing.n is None else {"n": writing.n}
    best = best_of_n(
        session, judge, sampler=writing.sampler, max_new_tokens=writing.max_new_tokens, stop=writing.stop, **options
    )
    on_text(best.session.text(0))
    return _Written(best.session, best.log, best.verdict, best.verdicts)


_WAYS: dict[str, Callable[[Session, Detector, Writing, Judge, OnText], _Written]] = {
    "greedy": _plain,
    "sample": _plain,
    "guided": _guided,
    "best-of-n": _best_of_n,
}
