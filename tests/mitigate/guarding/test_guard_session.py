"""A guard on what a session writes: nothing is read twice, and a guard that comes late hears what follows."""

from __future__ import annotations

import numpy as np
import pytest

import groundscope as gs
from groundscope.errors import InputError
from groundscope.mitigate.guarding.events import Released, Stopped, Withheld
from groundscope.mitigate.guarding.guard import guard_session
from groundscope.mitigate.writing.generate import generate
from groundscope.mitigate.writing.sampler import Sampler
from groundscope.mitigate.writing.session import Session

QUESTION = "When was it completed?"
PASSAGES = ("The tower was completed in 1889.", "Bees make honey.")
EVERYTHING = 1e9


def shown(events):
    return "".join(event.text for event in events if isinstance(event, Released))


@pytest.mark.parametrize("mode", ["audit", "withhold", "stop"])
def test_own_generation_is_guarded_without_reading_twice(make_tiny, mode):
    lm = make_tiny()
    scope = gs.Scope(lm, "entropy", threshold=EVERYTHING)
    layout = lm.renderer().prompt(QUESTION, PASSAGES)
    sampler = Sampler(temperature=1.0, seed=2)
    session = Session(lm, layout, scope.detector.signals)
    plain = Session(lm, layout, scope.detector.signals)
    list(generate(plain, sampler, 40))
    passes = []
    handle = lm.anatomy.decoder.register_forward_pre_hook(lambda *_: passes.append(1))
    stream = guard_session(generate(session, sampler, 40), session, scope, QUESTION, mode=mode)
    events = list(stream)
    handle.remove()
    assert len(passes) == session.tokens
    whole = plain.trace(0).layout.response
    assert shown(events) == whole and stream.clean
    verdict = events[-1].verdict
    trace = lm.trace(session.trace(0).layout, list(scope.detector.signals))
    np.testing.assert_allclose(
        [t.score for t in verdict.tokens], scope.detector.token_scores(trace), rtol=1e-4, atol=1e-4
    )
    assert verdict.passages == PASSAGES and verdict.response == whole


@pytest.mark.parametrize("mode", ["audit", "withhold", "stop"])
@pytest.mark.parametrize("first", [1, 7, 20])
def test_a_guard_that_comes_late_hears_only_what_follows(make_tiny, mode, first):
    lm = make_tiny()
    scope = gs.Scope(lm, "entropy", threshold=EVERYTHING)
    session = Session(lm, lm.renderer().prompt(QUESTION, PASSAGES), scope.detector.signals)
    sampler = Sampler(temperature=1.0, seed=2)
    before = "".join(token.piece for token in generate(session, sampler, first))
    stream = guard_session(generate(session, sampler, 30), session, scope, QUESTION, mode=mode)
    events = list(stream)
    whole = session.trace(0).layout.response
    assert session.length(0) > first and before + shown(events) == whole == events[-1].verdict.response
    for event in events[:-1]:
        if isinstance(event, Released):
            assert event.start >= len(before) and event.text == whole[event.start : event.end]


@pytest.mark.parametrize("mode", ["withhold", "stop"])
def test_what_a_late_guard_flags_is_what_follows(make_tiny, mode):
    lm = make_tiny()
    scope = gs.Scope(lm, "entropy", threshold=-EVERYTHING)
    session = Session(lm, lm.renderer().prompt(QUESTION, PASSAGES), scope.detector.signals)
    before = "".join(token.piece for token in generate(session, Sampler(temperature=1.0, seed=2), 7))
    stream = guard_session(generate(session, Sampler(temperature=1.0, seed=2), 30), session, scope, mode=mode)
    events = list(stream)
    held = [event for event in events if isinstance(event, (Withheld, Stopped))]
    assert held and all(event.start >= len(before) for event in held)


def test_tokens_of_another_session_are_refused(make_tiny):
    lm = make_tiny()
    scope = gs.Scope(lm, "entropy", threshold=EVERYTHING)
    prompt = lm.renderer().prompt(QUESTION, PASSAGES)
    one, other = (Session(lm, prompt, scope.detector.signals) for _ in range(2))
    with pytest.raises(InputError, match="the same session"):
        list(guard_session(generate(one, Sampler(), 5), other, scope))
    tokens = list(generate(other, Sampler(temperature=1.0, seed=2), 8))
    with pytest.raises(InputError, match="in order"):
        list(guard_session([tokens[0], tokens[2]], other, scope))
