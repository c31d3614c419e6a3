"""Best of n: one batch, the lowest verdict, answers without a score last."""

from __future__ import annotations

import pytest

from groundscope.errors import ContextTooLongError, InputError
from groundscope.mitigate.writing.best_of_n import best_of_n
from groundscope.mitigate.writing.decisions import replay
from groundscope.mitigate.writing.generate import generate
from groundscope.mitigate.writing.sampler import Sampler
from groundscope.mitigate.writing.session import Session
from groundscope.verdict import Threshold, Verdict

DRAWN = Sampler(temperature=1.0, top_p=0.95, seed=4)


@pytest.fixture
def session(tiny):
    return Session(tiny, tiny.renderer().prompt("When was it completed?", ["The tower was completed in 1889."]))


def scoring(scores):
    """A judge with given scores, in the order of the answers; ``None`` is an answer without one."""
    asked = []

    def judge(session, number):
        asked.append(number)
        score, text = scores[number], session.text(number)
        if score is None:
            return Verdict("no_answer", text, None, None, "mean", "given", "tiny")
        return Verdict("scored", text, score, score >= 1, "mean", "given", "tiny", Threshold(1.0, 1.0, "given"))

    return judge, asked


@pytest.mark.parametrize(
    ("scores", "chosen", "basis"),
    [
        ([3.0, 1.0, 2.0], 1, "score"),
        ([2.0, 1.0, 1.0], 1, "score"),
        ([None, 5.0, None], 1, "score"),
        ([None, None, None], 0, "first"),
    ],
)
def test_the_lowest_score_wins(tiny, session, scores, chosen, basis):
    judge, asked = scoring(scores)
    best = best_of_n(session, judge, n=3, sampler=DRAWN, max_new_tokens=9)
    decision = best.log.decisions[0]
    assert (decision.chosen, decision.basis, asked) == (chosen, basis, [0, 1, 2])
    assert best.verdict is best.verdicts[chosen] and best.verdict.response == best.session.text(0) == best.log.text
    assert [item.score for item in decision.candidates] == scores
    assert replay(best.log, tiny.tokenizer) == best.log.text and session.tokens == 0


def test_answers_are_those_of_sampling_in_one_batch(tiny, session):
    shapes = []
    handle = tiny.anatomy.decoder.register_forward_pre_hook(
        lambda _m, _a, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    try:
        best = best_of_n(session, scoring([3.0, 1.0, 2.0])[0], n=3, sampler=DRAWN, max_new_tokens=9)
    finally:
        handle.remove()
    assert shapes == [(3, 1)] * 9
    one = session.fork(1)
    list(generate(one, DRAWN, 9))
    whole = one.ids(0)[: len(best.log.decisions[0].candidates[0].ids)]
    assert list(best.log.decisions[0].candidates[0].ids) == whole and len(one.ids(0)) - len(whole) < 4
    only = best_of_n(session, scoring([3.0])[0], n=1, sampler=DRAWN, max_new_tokens=9)
    assert only.log.decisions[0].candidates[0].ids == best.log.decisions[0].candidates[0].ids
    assert only.log.decisions[0].basis == "only"


def test_equal_answers_are_judged_once(session):
    judge, asked = scoring([1.0, 2.0, 3.0])
    best = best_of_n(session, judge, n=3, sampler=Sampler(1.0, top_k=1), max_new_tokens=6)
    assert asked == [0] and (best.log.decisions[0].basis, best.log.decisions[0].chosen) == ("identical", 0)


def test_wrong_use_is_refused(session, make_tiny):
    judge, asked = scoring([1.0])
    for options, said in (({"n": 0}, "'n'"), ({"n": 2, "sampler": Sampler()}, "must draw"), ({"stop": "x"}, "stop")):
        with pytest.raises(InputError, match=said):
            best_of_n(session, judge, **options)
    with pytest.raises(InputError, match="one sequence without tokens"):
        best_of_n(session.fork(2), judge)
    with pytest.raises(ContextTooLongError):
        best_of_n(session, judge, max_new_tokens=5000)
    assert not asked
