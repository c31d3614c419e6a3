"""Best of n: whole answers are sampled as one batch, each gets a verdict, the lowest score wins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from groundscope.errors import InputError, check_count
from groundscope.mitigate.writing.decisions import Candidate, Decision, DecisionLog, lowest
from groundscope.mitigate.writing.generate import end_at_budget, generate
from groundscope.mitigate.writing.sampler import Sampler
from groundscope.mitigate.writing.session import Session
from groundscope.mitigate.writing.spelling import StopStrings
from groundscope.verdict import Verdict

Judge = Callable[[Session, int], Verdict]


@dataclass(frozen=True, eq=False)
class Best:
    """The answer that won.

    Attributes:
        session: The winner alone, with its cache.
        verdicts: One per answer, in the order of the candidates.
        log: The answers' tokens, texts and scores, and the choice.
    """

    session: Session
    verdicts: tuple[Verdict, ...]
    log: DecisionLog

    @property
    def verdict(self) -> Verdict:
        """The winner's verdict."""
        return self.verdicts[self.log.decisions[0].chosen]


def best_of_n(
    session: Session,
    judge: Judge,
    *,
    n: int = 8,
    sampler: Sampler | None = None,
    max_new_tokens: int = 256,
    stop: Sequence[str] | StopStrings = (),
) -> Best:
    """Write ``n`` whole answers and keep the one with the lowest verdict.

    The answers share the prompt, which is read once. Answers without a score (a refusal, an empty one) come last, the
    first of equals wins, and equal answers are judged once. Where no answer has a score, the first is taken.

    Args:
        session: One sequence without tokens; it stays as it is.
        judge: Returns the verdict of one sequence of a session.
        n: How many.
        sampler: How tokens are drawn; by default with temperature 0.9 and top-p 0.95.
        max_new_tokens: At most so many tokens in an answer.
        stop: Strings that end an answer.

    Raises:
        InputError: If a parameter is not usable.
        ContextTooLongError: If the budget does not fit the model.
    """
    check_count("best_of_n", "n", n)
    chosen = sampler or Sampler(0.9, 0.95)
    if n > 1 and chosen.greedy:
        raise InputError(
            f"The 'sampler' parameter of best_of_n must draw tokens, or all {n} answers are the same. "
            f"Got {chosen!r} instead; set a temperature above 0."
        )
    if session.size != 1 or session.tokens:
        raise InputError(
            "The 'session' parameter of best_of_n must hold one sequence without tokens. "
            f"Got {session.size} with {session.tokens}."
        )
    stops = stop if isinstance(stop, StopStrings) else StopStrings(stop)
    answers = session.fork(n)
    for _ in generate(answers, chosen, max_new_tokens, stop=stops):
        pass
    end_at_budget(answers)
    known: dict[tuple[int, ...], Verdict] = {}
    verdicts = []
    for number in range(n):
        key = tuple(answers.ids(number))
        if key not in known:
            known[key] = judge(answers, number)
        verdicts.append(known[key])
    scores = [verdict.score for verdict in verdicts]
    best = lowest(scores)
    candidates = tuple(candidate_of(answers, number, score) for number, score in enumerate(scores))
    basis = "only" if n == 1 else "identical" if len(known) == 1 else "first" if best is None else "score"
    decision = Decision(0, candidates, 0 if best is None else best, basis)
    text, detector = answers.text(decision.chosen), verdicts[0].detector
    log = DecisionLog(
        "best-of-n", session.lm.name, text, chosen, max_new_tokens, stops.strings, (decision,), detector, {"n": n}
    )
    answers.keep(decision.chosen)
    return Best(answers, tuple(verdicts), log)


def candidate_of(session: Session, number: int, score: float | None = None) -> Candidate:
    """Return a sequence of a session as a candidate."""
    return Candidate(tuple(session.ids(number)), session.text(number), score, session.ended(number))
