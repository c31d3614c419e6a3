"""The ways to write an answer that :class:`groundscope.mitigate.answering.options.Writing` names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from groundscope.detectors.base import Detector
from groundscope.detectors.learned.redeep import ReDeEPToken
from groundscope.errors import InputError
from groundscope.mitigate.aarf.aarf import PRESETS, aarf
from groundscope.mitigate.aarf.aarf import SIGNALS as AARF_SIGNALS
from groundscope.mitigate.answering.options import Writing
from groundscope.mitigate.writing.best_of_n import Judge, best_of_n, candidate_of
from groundscope.mitigate.writing.decisions import Decision, DecisionLog
from groundscope.mitigate.writing.generate import end_at_budget, generate
from groundscope.mitigate.writing.guided import guided
from groundscope.mitigate.writing.judging import online_signals
from groundscope.mitigate.writing.session import Session
from groundscope.verdict import Verdict

OnPiece = Callable[[Session, str], object]


@dataclass(frozen=True, eq=False)
class Written:
    """A finished answer.

    Attributes:
        session: It alone, with its cache and signals.
        log: The decisions.
        verdict: On it, if there is one already.
        verdicts: On all answers that it was chosen from.
        changed: Whether the session's signals are not those of the unchanged model.
    """

    session: Session
    log: DecisionLog
    verdict: Verdict | None = None
    verdicts: tuple[Verdict, ...] = ()
    changed: bool = False


def extra_signals(strategy: str, detector: Detector) -> tuple[str, ...]:
    """Return the signals that a strategy reads whatever its judge does.

    Raises:
        InputError: If the detector cannot serve the strategy.
        PrerequisiteError: If it must learn first.
    """
    if strategy == "guided":
        online_signals(detector)
    if strategy != "aarf":
        return ()
    if not isinstance(detector, ReDeEPToken):
        raise InputError(
            "The strategy 'aarf' changes the heads and layers that a redeep-token detector has chosen for the model. "
            f"Got the detector {detector.name!r} instead; train one with 'groundscope train redeep-token'."
        )
    detector.check_fitted()
    return AARF_SIGNALS


def _plain(session: Session, _: Detector, writing: Writing, judge: Judge, on_piece: OnPiece) -> Written:
    for token in generate(session, writing.sampler, writing.max_new_tokens, stop=writing.stop):
        if token.piece:
            on_piece(session, token.piece)
    return Written(session, _one_decision(session, writing))


def _one_decision(session: Session, writing: Writing, **known: Any) -> DecisionLog:
    end_at_budget(session)
    decision = Decision(0, (candidate_of(session, 0),), 0, "only")
    return DecisionLog(
        writing.strategy, session.lm.name, session.text(0), writing.sampler, writing.max_new_tokens,
        tuple(writing.stop), (decision,), **known,
    )  # fmt: skip


def _guided(session: Session, detector: Detector, writing: Writing, judge: Judge, on_piece: OnPiece) -> Written:
    options = _given(writing, ("candidates", "chunk", "variant"))
    answer = guided(
        session, detector, sampler=writing.sampler, max_new_tokens=writing.max_new_tokens, stop=writing.stop, **options
    )
    for step in answer:
        if step.piece:
            on_piece(answer.session, step.piece)
    return Written(answer.session, answer.log)


def _best_of_n(session: Session, _: Detector, writing: Writing, judge: Judge, on_piece: OnPiece) -> Written:
    best = best_of_n(
        session, judge, sampler=writing.sampler, max_new_tokens=writing.max_new_tokens, stop=writing.stop,
        **_given(writing, ("n",)),
    )  # fmt: skip
    on_piece(best.session, best.session.text(0))
    return Written(best.session, best.log, best.verdict, best.verdicts)


def _aarf(session: Session, detector: Detector, writing: Writing, judge: Judge, on_piece: OnPiece) -> Written:
    redeep = cast(ReDeEPToken, detector)  # extra_signals has refused all others
    preset = PRESETS[writing.preset or "paper"]
    given = _given(writing, ("alpha", "beta", "tau"))
    preset = replace(preset, **given, source="the caller") if given else preset
    options = _given(writing, ("passes", "cache"))
    tokens = aarf(session, redeep, preset, writing.sampler, writing.max_new_tokens, stop=writing.stop, **options)
    for token in tokens:
        if token.piece:
            on_piece(session, token.piece)
    steps = [{"token": step.token, "score": step.score, "edited": step.edited} for step in tokens.steps]
    settings = {**asdict(preset), "passes": 2, **options, "steps": steps}
    log = _one_decision(session, writing, detector=detector.name, settings=settings)
    changed = writing.passes == 1 or writing.cache == "changed"
    return Written(session, log, changed=changed and any(step.edited for step in tokens.steps))


def _given(writing: Writing, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(writing, name) for name in names if getattr(writing, name) is not None}


WAYS: dict[str, Callable[[Session, Detector, Writing, Judge, OnPiece], Written]] = {
    "greedy": _plain,
    "sample": _plain,
    "guided": _guided,
    "aarf": _aarf,
    "best-of-n": _best_of_n,
}
