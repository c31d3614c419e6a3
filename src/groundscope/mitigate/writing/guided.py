"""Guided decoding: several ways to go on are written as one batch, a detector scores them, the best one stays.

Lookback Lens (arXiv 2407.07071), section 4, for any detector that scores tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from groundscope.detectors.base import Detector
from groundscope.errors import ContextTooLongError, InputError, check_choice, check_count
from groundscope.lm.running import end_ids
from groundscope.mitigate.writing.decisions import Candidate, Decision, DecisionLog, lowest
from groundscope.mitigate.writing.generate import end_at_budget, generate
from groundscope.mitigate.writing.judging import check_guide, stretch_score
from groundscope.mitigate.writing.sampler import Sampler
from groundscope.mitigate.writing.session import Session
from groundscope.mitigate.writing.spelling import StopStrings
from groundscope.text.questions import only_asks
from groundscope.trace.trace import Trace

Variant = Literal["paper", "official"]
BUDGET = 256


@dataclass(frozen=True)
class Step:
    """One chunk that has been added to the answer.

    Attributes:
        decision: The candidates and the choice.
        piece: The characters that are certain to stay since then; those that may begin a stop string are held back.
    """

    decision: Decision
    piece: str


class Guided(Iterator[Step]):
    """An answer that is being written under guidance; made by :func:`guided`. Each step adds a chunk.

    It may be left at any time; what was added until then stays.

    Attributes:
        session: The answer so far, with its cache and signals.
        decisions: What was decided so far.
    """

    def __init__(
        self, session: Session, detector: Detector, counts: tuple[int, int, int], sampler: Sampler,
        stops: StopStrings, variant: Variant,
    ) -> None:  # fmt: skip
        self.session = session
        self.decisions: list[Decision] = []
        self._detector = detector
        self._candidates, self._chunk, self._left = counts
        self._budget = self._left
        self._sampler, self._stops, self._variant = sampler, stops, variant
        self._shown = len(session.text(0))
        self._prefix = tuple(session.ids(0))
        self._question = _question(session)
        # One candidate is plain sampling: the draws of a chunk go on where those of the last one ended.
        self._draws = sampler.draws(1) if self._candidates == 1 else None

    @property
    def text(self) -> str:
        """The answer so far."""
        return self.session.text(0)

    @property
    def log(self) -> DecisionLog:
        """What was decided so far."""
        settings = {"candidates": self._candidates, "chunk": self._chunk, "variant": self._variant}
        return DecisionLog(
            "guided", self.session.lm.name, self.text, self._sampler, self._budget, self._stops.strings,
            tuple(self.decisions), self._detector.name, settings, self._prefix,
        )  # fmt: skip

    def __next__(self) -> Step:
        if self.session.ended(0) is not None:
            raise StopIteration
        stage, size = len(self.decisions), min(self._chunk, self._left)
        draws = self._draws or self._sampler.draws(self._candidates, stage)
        branches = self.session.fork(self._candidates)
        for _ in generate(branches, self._sampler, size, stop=self._stops, draws=draws):
            pass
        decision = self._decide(branches, stage)
        branches.keep(decision.chosen)
        self.session = branches
        self._left -= size
        self.decisions.append(decision)
        if self._left < 1:
            end_at_budget(self.session)
        return Step(decision, self._certain())

    def _certain(self) -> str:
        """What has not been shown and will stay."""
        text = self.text
        sure = len(text) if self.session.ended(0) is not None else len(text) - self._stops.held(text)
        piece = text[self._shown : sure]
        self._shown = max(self._shown, sure)
        return piece

    def _decide(self, branches: Session, stage: int) -> Decision:
        traces = [branches.trace(number) for number in range(branches.size)]
        found = [self._candidate(branches, number, trace) for number, trace in enumerate(traces)]
        if len(found) == 1:
            return Decision(stage, tuple(found), 0, "only")
        if len(set(found)) == 1:
            return Decision(stage, tuple(found), 0, "identical")
        asking = [
            self._variant == "paper" and only_asks(trace.layout.response or "", self._question) for trace in traces
        ]
        scores: dict[Candidate, float | None] = {}
        for number, item in enumerate(found):
            if asking[number] and not all(asking):
                scores[item] = None
            elif item not in scores:
                scores[item] = self._score(branches, number, traces[number])
        best = lowest([scores[item] for item in found]) or 0  # one at least has a score
        return Decision(stage, tuple(replace(item, score=scores[item]) for item in found), best, "score")

    def _candidate(self, branches: Session, number: int, trace: Trace) -> Candidate:
        before, ids = self.session.tokens, branches.ids(number)
        text = (trace.layout.response or "")[len(self.text) :]
        return Candidate(tuple(ids[before:]), text, None, branches.ended(number), max(0, before - len(ids)))

    def _score(self, branches: Session, number: int, trace: Trace) -> float:
        first, last = self.session.tokens, branches.length(number)
        official_end = self._variant == "official" and branches.ended(number) == "end"
        if last > first and not official_end:
            return stretch_score(self._detector, trace, first, last)
        last = max(first, last)
        if branches.tokens == last:  # where others go on, what ended a candidate is fed beside them
            end = end_ids(branches.lm)[0]
            branches.online.feed([[end]] * branches.size)
        return stretch_score(self._detector, _with_next(branches, number, trace, last), first, last + 1)


def guided(
    session: Session,
    detector: Detector,
    *,
    candidates: int = 8,
    chunk: int = 8,
    sampler: Sampler | None = None,
    max_new_tokens: int = BUDGET,
    stop: Sequence[str] | StopStrings = (),
    variant: Variant = "paper",
) -> Guided:
    """Write on, chunk by chunk, with the continuation that a detector finds best supported.

    Every chunk, ``candidates`` continuations are sampled as one batch that shares what was read and written so far.
    Each is scored over its own tokens (:func:`groundscope.mitigate.writing.judging.stretch_score`); the lowest score is
    appended, the first of equals, and its cache is kept. Identical candidates are not scored. A candidate that ends
    early is scored over the tokens it has; one that has none, because it ends at once, over the token that ended it.
    If a candidate that ended is chosen, the answer ends. ``candidates=1`` is plain sampling.

    A candidate that leaves the answer doing nothing but ask (:func:`groundscope.text.questions.only_asks`) gets no
    score, unless all do: it claims nothing, and detectors find few things better supported than the question over
    again with the passages' words in place of its pronouns.

    ``variant='official'`` follows the released code where it differs from the paper: such candidates are scored;
    neither temperature nor top-p is applied, though the paper states 0.9 and 0.95; the budget holds whole chunks only;
    and the end of text counts as a token of the candidate that it ends. The released code also reads the prompt again
    for each candidate of the first chunk and writes candidates one by one, which changes nothing but the time. It
    always takes a budget of 256 tokens, the default here.

    Args:
        session: One sequence, whose signals include the detector's; it stays as it is.
        detector: Any whose signals can be had while the text is written.
        candidates: How many continuations per chunk.
        chunk: Tokens in a chunk; one that is larger than the budget is cut to it, and so is the last one.
        sampler: How tokens are drawn. By default with temperature 0.9 and top-p 0.95, as the paper has it, or for
            ``official`` with temperature 1.
        max_new_tokens: At most so many tokens, those of a stop string included.
        stop: Strings that end an answer.
        variant: ``paper`` or ``official``.

    Raises:
        InputError: If a parameter is not usable, or the detector reads what cannot be had online: the message names
            the signal. Nothing has been written then.
        PrerequisiteError: If the detector must learn first.
        ContextTooLongError: If the budget does not fit the model.
    """
    check_choice("guided", "variant", variant, get_args(Variant))
    for name, count in (("candidates", candidates), ("chunk", chunk), ("max_new_tokens", max_new_tokens)):
        check_count("guided", name, count)
    official = variant == "official"
    chosen = sampler or (Sampler(1.0) if official else Sampler(0.9, 0.95))
    if official and (chosen.temperature, chosen.top_p, chosen.top_k) != (1, 1, 0):
        raise InputError(
            "The 'sampler' parameter of guided must be Sampler(temperature=1, seed=...) for variant='official', whose "
            f"code warps nothing. Got {chosen!r} instead; use variant='paper' for it."
        )
    if candidates > 1 and chosen.greedy:
        raise InputError(
            f"The 'sampler' parameter of guided must draw tokens, or all {candidates} candidates are the same. "
            f"Got {chosen!r} instead; set a temperature above 0."
        )
    if session.size != 1 or session.ended(0) is not None:
        raise InputError(
            f"The 'session' parameter of guided must hold one sequence that has not ended. Got {session.size}"
            f"{'' if session.ended(0) is None else ', ended'}; fork one."
        )
    judge = check_guide("guided", detector, session)
    stops = stop if isinstance(stop, StopStrings) else StopStrings(stop)
    budget = max_new_tokens
    if official and budget > chunk:
        budget -= budget % chunk
    limit = session.lm.max_length
    if limit is not None and session.longest() + budget > limit:
        raise ContextTooLongError(session.longest(), budget, limit, "Shorten the passages, or lower max_new_tokens.")
    return Guided(session, judge, (int(candidates), int(chunk), int(budget)), chosen, stops, variant)


def _question(session: Session) -> str:
    """The question that an answer is written to, as the prompt's tokens spell it; empty where it is not known."""
    layout = session.online.prompt(0)
    ids = [
        number
        for part in layout.segments
        if part.kind == "question"
        for number in layout.prompt_ids[part.start : part.end]
    ]
    return str(session.lm.tokenizer.decode(ids)).strip() if session.lm.tokenizer is not None else ""


def _with_next(branches: Session, number: int, trace: Trace, length: int) -> Trace:
    """The trace of a sequence with the token that follows its first ``length`` ones, which shows no character."""
    text, offsets = trace.layout.response, trace.layout.response_offsets
    if text is None or offsets is None:
        return branches.online.trace(number, length + 1)
    hidden = np.full((length + 1 - len(offsets), 2), len(text), dtype=np.int64)
    return branches.online.trace(number, length + 1, text, np.concatenate([offsets, hidden]))
