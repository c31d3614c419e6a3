"""The decision log: what it refuses, and that a changed one does not replay."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundscope.errors import InputError, MismatchError
from groundscope.mitigate.writing.decisions import Candidate, Decision, DecisionLog, lowest, replay
from groundscope.mitigate.writing.sampler import Sampler

CANDIDATES = st.builds(
    Candidate,
    st.lists(st.integers(0, 400), max_size=4).map(tuple),
    st.text(max_size=5),
    st.none() | st.floats(-5, 5),
    st.sampled_from(["end", "stop", "length", None]),
    st.integers(0, 2),
)


@st.composite
def decisions(draw):
    items = tuple(draw(st.lists(CANDIDATES, min_size=1, max_size=4)))
    best = lowest([item.score for item in items])
    return Decision(draw(st.integers(0, 9)), items, best or 0, "first" if best is None else "score")


@given(st.lists(decisions(), max_size=3), st.text(), st.lists(st.text(min_size=1), max_size=2), st.integers(0, 99))
def test_a_log_survives_json(items, text, stop, seed):
    log = DecisionLog(
        "guided", "m", text, Sampler(0.5, seed=seed), 9, tuple(stop), tuple(items), "d", {"chunk": 3}, (1,)
    )
    assert DecisionLog.from_dict(json.loads(json.dumps(log.to_dict()))) == log


def test_ids_leave_out_what_a_later_stop_took_back():
    first = Decision(0, (Candidate((5, 6, 7), "abc"),), 0, "only")
    second = Decision(1, (Candidate((), "", None, "stop", cut=2),), 0, "only")
    log = DecisionLog("guided", "m", "a", Sampler(1.0), 9, ("bc",), (first, second), prefix=(3,))
    assert log.ids == [3, 5]


def test_a_changed_log_does_not_replay(tiny):
    ids = tuple(tiny.tokenizer("The tower was completed.")["input_ids"])
    text = tiny.tokenizer.decode(ids)
    log = DecisionLog(
        "greedy", "tiny", text, Sampler(), 9, (), (Decision(0, (Candidate(ids, text, None, "end"),), 0, "only"),)
    )
    assert replay(log, tiny.tokenizer) == text
    assert replay(replace(log, text="", decisions=()), tiny.tokenizer) == ""
    for wrong in (text[:-1], text + "x", ""):
        with pytest.raises(MismatchError, match="decisions lead to"):
            replay(replace(log, text=wrong), tiny.tokenizer)


def test_what_is_no_log_is_not_replayed(tiny):
    with pytest.raises(InputError, match="'log' parameter"):
        replay({}, tiny.tokenizer)
    huge = Decision(0, (Candidate((10**30,), "a"),), 0, "only")
    with pytest.raises(MismatchError, match="no tokenizer's"):
        replay(DecisionLog("greedy", "m", "a", Sampler(), 9, (), (huge,)), tiny.tokenizer)


def test_what_cannot_be_is_refused():
    low, high = Candidate((1,), "a", 1.0), Candidate((2,), "b", 2.0)
    with pytest.raises(InputError, match="first of the lowest"):
        Decision(0, (low, high), 1, "score")
    with pytest.raises(InputError, match="one of its 2"):
        Decision(0, (low, high), 2, "score")
    with pytest.raises(InputError, match="basis"):
        Decision(0, (low, high), 0, "taste")
    for wrong in ({"score": float("nan")}, {"ids": (-1,)}, {"text": 3}, {"ended": "bored"}, {"cut": -1}):
        with pytest.raises(InputError):
            replace(low, **wrong)
    log = DecisionLog("greedy", "m", "a", Sampler(), 9, (), (Decision(0, (low, high), 0, "score"),))
    record = log.to_dict()
    for broken in (
        {**record, "log_version": 9}, {**record, "more": 1}, {**record, "decisions": [{}]}, {**record, "sampler": None},
        {key: value for key, value in record.items() if key != "stop"}, [], {**record, "prefix": "ab"},
        {**record, "prefix": [-1]}, {**record, "text": None}, {**record, "stop": "abc"}, {**record, "strategy": 3},
        {**record, "max_new_tokens": "9"},
    ):  # fmt: skip
        with pytest.raises(InputError, match="decision log"):
            DecisionLog.from_dict(broken)
    record["decisions"][0]["chosen"] = 1
    with pytest.raises(InputError, match="first of the lowest"):
        DecisionLog.from_dict(record)
