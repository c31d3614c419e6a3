"""An answer from question and passages: laid out, written by a strategy, checked, and abstained from if asked to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from groundscope.assembly import Assembler
from groundscope.detectors.base import Detector
from groundscope.errors import ContextTooLongError, InputError, UnknownNameError, check_choice, check_count
from groundscope.example import Example
from groundscope.lm.prompt.layout import Layout
from groundscope.mitigate.aarf.aarf import PRESETS, Cache, Preset, check_passes
from groundscope.mitigate.writing.abstain import AbstainMode, Abstention, abstain
from groundscope.mitigate.writing.decisions import DecisionLog
from groundscope.mitigate.writing.drafts import Drafts, OnDraft
from groundscope.mitigate.writing.guided import BUDGET, Variant
from groundscope.mitigate.writing.judging import is_online
from groundscope.mitigate.writing.sampler import Sampler
from groundscope.mitigate.writing.session import Reason, Session
from groundscope.mitigate.writing.spelling import StopStrings
from groundscope.mitigate.writing.ways import WAYS, extra_signals
from groundscope.reading import Reader, Unread, nothing_to_read
from groundscope.text.visible import content_of
from groundscope.verdict import Threshold, Verdict

OnText = Callable[[str], object]
_DRAWING = ("temperature", "top_p", "top_k")
_WHOLE = ("max_new_tokens", "candidates", "chunk", "n", "top_k", "seed")
_REAL = ("temperature", "top_p", "alpha", "beta", "tau")
# Per strategy, the options that others do not know.
STRATEGIES: dict[str, tuple[str, ...]] = {
    "greedy": (),
    "sample": _DRAWING,
    "guided": (*_DRAWING, "candidates", "chunk", "variant"),
    "aarf": (*_DRAWING, "preset", "alpha", "beta", "tau", "passes", "cache"),
    "best-of-n": (*_DRAWING, "n"),
}


@dataclass(frozen=True)
class Writing:
    """How an answer is written.

    Attributes:
        strategy: ``greedy``, ``sample``, ``guided`` (:func:`groundscope.mitigate.writing.guided.guided`), ``aarf``
            (:func:`groundscope.mitigate.aarf.aarf.aarf`) or ``best-of-n``
            (:func:`groundscope.mitigate.writing.best_of_n.best_of_n`).
        max_new_tokens: At most so many tokens.
        stop: Strings that end the answer.
        seed: Of the draws.
        temperature: See :class:`groundscope.mitigate.writing.sampler.Sampler`; by default 0.9, for the official
            variant 1. For ``aarf`` tokens are drawn only if one of these three is given.
        top_p: Likewise; by default 0.95, for the official variant 1.
        top_k: Likewise; by default 0.
        candidates: For ``guided``: continuations per chunk, by default 8.
        chunk: For ``guided``: tokens in a chunk, by default 8.
        variant: For ``guided``: ``paper`` (default) or ``official``.
        preset: For ``aarf``: name of the constants (:data:`groundscope.mitigate.aarf.aarf.PRESETS`); by default
            ``paper``.
        alpha: For ``aarf``: in place of the preset's.
        beta: Likewise.
        tau: Likewise.
        passes: For ``aarf``: 2 (default) or 1.
        cache: For ``aarf``: ``plain`` or ``changed``.
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
    preset: str | None = None
    alpha: float | None = None
    beta: float | None = None
    tau: float | None = None
    passes: Literal[1, 2] | None = None
    cache: Cache | None = None
    n: int | None = None
    abstain: AbstainMode | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.strategy, str) or self.strategy not in STRATEGIES:
            raise UnknownNameError("strategy", self.strategy, STRATEGIES)
        for name in sorted({name for known in STRATEGIES.values() for name in known}):
            if getattr(self, name) is not None and name not in STRATEGIES[self.strategy]:
                users = ", ".join(repr(key) for key, known in STRATEGIES.items() if name in known)
                raise InputError(
                    f"The {name!r} parameter of generate has no effect with strategy={self.strategy!r}. "
                    f"Got {getattr(self, name)!r}; leave it out, or choose {users}."
                )
        check_count("generate", "max_new_tokens", self.max_new_tokens)
        for name in ("candidates", "chunk", "n"):
            if getattr(self, name) is not None:
                check_count("generate", name, getattr(self, name))
        StopStrings(self.stop)
        self._check_aarf()
        check_choice("generate", "abstain", self.abstain, (None, *get_args(AbstainMode)))
        if self.temperature == 0:
            raise InputError(
                "The 'temperature' parameter of generate must be above 0 where tokens are drawn. Got 0 instead; "
                "strategy='greedy' takes the likeliest token."
            )
        self._check_official()
        self.sampler  # noqa: B018  checks its own numbers
        # Plain numbers, which a decision log can be written with.
        for kind, names in ((int, _WHOLE), (float, _REAL)):
            for name in names:
                if getattr(self, name) is not None:
                    object.__setattr__(self, name, kind(getattr(self, name)))

    def _check_official(self) -> None:
        for name, value in (("temperature", 1), ("top_p", 1), ("top_k", 0)):
            given = getattr(self, name)
            if self.variant == "official" and given is not None and given != value:
                raise InputError(
                    f"variant='official' draws as released, with {name}={value}. Got {given!r} instead; leave "
                    f"{name!r} out, or choose variant='paper'."
                )

    def _check_aarf(self) -> None:
        if self.preset is not None and (not isinstance(self.preset, str) or self.preset not in PRESETS):
            raise UnknownNameError("preset of AARF", self.preset, PRESETS)
        alpha, beta, tau = (1.0 if value is None else value for value in (self.alpha, self.beta, self.tau))
        Preset(alpha, beta, tau)
        check_choice("generate", "passes", self.passes, (None, 1, 2))
        check_choice("generate", "cache", self.cache, (None, *get_args(Cache)))
        check_passes(self.passes or 2, self.cache)

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
        drawn = any(getattr(self, name) is not None for name in _DRAWING)
        if self.strategy == "greedy" or (self.strategy == "aarf" and not drawn):
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
