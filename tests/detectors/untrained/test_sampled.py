"""Detectors that compare with sampled answers."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch

import groundscope as gs
from groundscope.detectors.untrained import sampled
from groundscope.detectors.untrained.sampled import EigenScore, SelfCheck, eigenscore, unigram_surprise
from groundscope.errors import InputError

EXAMPLE = gs.Example("When?", ("The tower was completed in 1889.",), "It was completed in 1887,  so.")
SMALL = {"samples": 4, "max_new_tokens": 6}


def gathered(detector, lm, example=EXAMPLE):
    layout = lm.renderer().layout(example)
    return gs.Trace(layout, detector.gather(lm, example, layout))


def test_eigenscore_by_hand():
    # Centred over channels: (1, -1, 0, 0) and (0, 0, 2, -2); their products are 2, 8 and 0.
    states = np.array([[4.0, 2, 3, 3], [1, 1, 3, -1]])
    assert eigenscore(states) == pytest.approx((math.log(2.001) + math.log(8.001)) / 2)
    assert eigenscore(states[:1].repeat(2, 0)) == pytest.approx((math.log(4.001) + math.log(0.001)) / 2, rel=1e-9)


def test_answers_that_lie_apart_score_higher():
    rng = np.random.default_rng(0)
    center, noise = rng.normal(size=32), rng.normal(size=(5, 32))
    scores = [eigenscore((center + spread * noise).astype(np.float32)) for spread in (0, 1e-3, 0.1, 1, 10)]
    assert scores == sorted(scores) and len(set(scores)) == 5
    assert np.isfinite(eigenscore(1e8 * center * np.ones((4, 1))))


def test_surprise_by_hand():
    got = unigram_surprise("Tea is hot.", ["tea is cold", "TEA, is"])
    # Tea 3, is 3, hot 1, "." 1, cold 1, "," 1: 10 units.
    np.testing.assert_allclose(got, np.log([10 / 3, 10 / 3, 10, 10]))
    assert unigram_surprise("one", []) == [0.0]


def test_tokens_carry_the_surprise_of_their_words(tiny):
    detector = SelfCheck(**SMALL)
    trace = gathered(detector, tiny)
    scores = detector.token_scores(trace)
    samples = detector.draw(tiny, trace.layout)
    texts = [tiny.tokenizer.decode(ids, skip_special_tokens=True) for ids in samples.ids]
    words = ["It", "was", "completed", "in", "1887", ",", "so", "."]
    units = dict(zip(words, unigram_surprise(EXAMPLE.response, texts), strict=True))
    seen = [
        [units[unit] for unit in units if unit in EXAMPLE.response[max(0, start) : end]]
        for start, end in trace.layout.response_offsets
    ]
    blank = [not EXAMPLE.response[start:end].strip() for start, end in trace.layout.response_offsets]
    assert any(blank)
    for score, values, nothing in zip(scores, seen, blank, strict=True):
        if nothing:
            others = [s for s, empty in zip(scores, blank, strict=True) if not empty]
            assert score == pytest.approx(np.mean(others), rel=1e-5)
        elif values:
            assert score >= max(values) - 1e-5
    assert scores.max() == pytest.approx(max(units.values()), rel=1e-5)


def test_a_word_that_the_samples_hold_is_less_surprising(tiny):
    detector = SelfCheck(samples=20, max_new_tokens=20)
    layout = tiny.renderer().layout(EXAMPLE)
    words = tiny.tokenizer.decode([i for ids in detector.draw(tiny, layout).ids for i in ids]).split()
    known = next(word for word in words if word.isalpha() and word.isascii())
    example = EXAMPLE.with_response(f"{known} zzyzx")
    layout = tiny.renderer().layout(example)
    scores = detector.token_scores(gs.Trace(layout, detector.gather(tiny, example, layout)))
    assert scores[0] < scores[-1]


@pytest.mark.parametrize("cls", [EigenScore, SelfCheck])
def test_a_seed_decides_and_nothing_else_moves(cls, tiny, monkeypatch):
    monkeypatch.setattr(sampled, "_DRAWN", {})
    before = torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    first = gathered(cls(**SMALL), tiny)
    sampled._DRAWN.clear()
    torch.manual_seed(99)
    second = gathered(cls(**SMALL), tiny)
    torch.random.set_rng_state(before[0])
    sampled._DRAWN.clear()
    other = gathered(cls(**SMALL, seed=1), tiny)
    assert (torch.random.get_rng_state() == before[0]).all()
    assert random.getstate() == before[1] and (np.random.get_state()[1] == before[2]).all()
    (name,), (changed,) = first, other
    np.testing.assert_array_equal(first[name], second[name])
    assert name != changed
    layout = tiny.renderer().layout(EXAMPLE)
    assert cls(**SMALL).draw(tiny, layout).ids != cls(**SMALL, seed=1).draw(tiny, layout).ids


def test_detectors_of_the_same_settings_sample_once(tiny, monkeypatch):
    monkeypatch.setattr(sampled, "_DRAWN", {})
    layout = tiny.renderer().layout(EXAMPLE)
    drawn = EigenScore(**SMALL).draw(tiny, layout)
    assert SelfCheck(**SMALL).draw(tiny, layout) is drawn
    assert SelfCheck(**SMALL, temperature=0.5).draw(tiny, layout) is not drawn


def test_responses_to_one_question_share_samples_whatever_comes_between(tiny, monkeypatch):
    monkeypatch.setattr(sampled, "_DRAWN", {})
    monkeypatch.setattr(sampled, "_KEPT", 2)
    renderer, detector = tiny.renderer(), EigenScore(**SMALL)
    one, *others = (renderer.layout(gs.Example(f"Question {i}?", EXAMPLE.passages, "Yes.")) for i in range(3))
    again = renderer.layout(gs.Example("Question 0?", EXAMPLE.passages, "No, they do not."))
    drawn = detector.draw(tiny, one)
    detector.draw(tiny, others[0])
    assert detector.draw(tiny, again) is drawn
    detector.draw(tiny, others[1])
    assert detector.draw(tiny, again) is not drawn and len(sampled._DRAWN[tiny]) == 2


def test_names_tell_settings_apart():
    assert EigenScore().own_signals == ("eigenscore_10x64_t1_s0",)
    names = {
        SelfCheck(**options).own_signal
        for options in ({}, {"samples": 3}, {"temperature": 0.5}, {"max_new_tokens": 5}, {"seed": 2})
    }
    assert len(names) == 5


def test_eigenscore_is_one_number_for_the_response(tiny):
    trace = gathered(EigenScore(**SMALL), tiny)
    (name,) = trace
    assert len(set(trace[name].tolist())) == 1
    assert trace[name][0] == pytest.approx(eigenscore(EigenScore(**SMALL).draw(tiny, trace.layout).states), rel=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 1}, "'samples' parameter of EigenScore must be at least 2. Got 1"),
        ({"samples": 2.0}, "'samples' parameter of EigenScore must be an integer"),
        ({"temperature": 0}, "'temperature' parameter of EigenScore must be a finite number above 0. Got 0"),
        ({"temperature": float("inf")}, "'temperature' parameter of EigenScore"),
        ({"max_new_tokens": 0}, "'max_new_tokens' parameter of EigenScore must be at least 1"),
        ({"seed": -1}, "'seed' parameter of EigenScore must be an integer of at least 0"),
        ({"seed": True}, "'seed' parameter of EigenScore must be an integer of at least 0"),
    ],
)
def test_parameters_that_are_none_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        EigenScore(**options)
