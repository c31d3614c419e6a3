"""What every detector that learns must do besides: run as ``common_checks`` says."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy
from bench import Bench
from common_checks import assert_same, scores_of

from groundscope.detectors.learnable import LearnedDetector
from groundscope.errors import InputError, PrerequisiteError
from groundscope.learn.labels import ALL_KINDS, response_label
from groundscope.trace.traced import TracedExample


def _new(detector: LearnedDetector) -> LearnedDetector:
    return type(detector)(**copy.deepcopy(detector.get_params()))


def _relabelled(item: TracedExample, **changes: object) -> TracedExample:
    return TracedExample(replace(item.example, **changes), item.trace)


def check_it_refuses_to_score_before_it_has_learnt(detector: LearnedDetector, bench: Bench) -> None:
    assert detector.needs_training and not detector.is_fitted
    trace = bench.learnable(detector)[0][0].trace
    for use in (lambda: detector.token_scores(trace), lambda: detector.span_scores(trace), detector.state):
        with pytest.raises(PrerequisiteError, match=rf"{detector.name!r} must learn before it scores"):
            use()


def check_what_it_learnt_survives_being_written_down(detector: LearnedDetector, bench: Bench) -> None:
    fitted = bench.ready(detector)
    assert fitted.is_fitted and fitted.fingerprint_ == bench.fingerprint
    arrays, facts = fitted.state()
    # As they are saved: safetensors and JSON, no more.
    arrays = safetensors.numpy.load(safetensors.numpy.save({k: np.ascontiguousarray(v) for k, v in arrays.items()}))
    facts, params, fingerprint = json.loads(json.dumps([facts, fitted.get_params(), fitted.fingerprint_]))
    other = type(detector)(**params)
    other.restore(arrays, facts)
    other.fingerprint_ = fingerprint
    traces = bench.traces(fitted)
    want = scores_of(fitted, traces)
    assert_same(scores_of(other, traces), want, rtol=0, atol=0)
    for trace, scores in zip(traces, want, strict=True):
        assert other.response_score(scores) == fitted.response_score(scores)
        np.testing.assert_array_equal(other.span_scores(trace), fitted.span_scores(trace))
    again, more = other.state()
    assert json.loads(json.dumps(more)) == facts and set(again) == set(arrays)
    for name, values in arrays.items():
        np.testing.assert_array_equal(again[name], values)


def check_learning_is_deterministic(detector: LearnedDetector, bench: Bench) -> None:
    traces = bench.traces(detector)
    one, other = (_new(detector).fit(*bench.learnable(detector)) for _ in range(2))
    assert_same(scores_of(one, traces), scores_of(other, traces), rtol=0, atol=0)


def check_learning_again_forgets(detector: LearnedDetector, bench: Bench) -> None:
    train, dev = bench.learnable(detector)
    traces = bench.traces(detector)
    want = scores_of(_new(detector).fit(train[2:], dev), traces)
    twice = _new(detector).fit(dev, train).fit(train[2:], dev)
    assert_same(scores_of(twice, traces), want, rtol=0, atol=0)
    assert twice.threshold_ is None


def check_learning_leaves_parameters_and_traces(detector: LearnedDetector, bench: Bench) -> None:
    # The arrays of these traces cannot be written to.
    train, dev = bench.learnable(detector)
    mine = _new(detector)
    before = copy.deepcopy(mine.get_params())
    assert mine.fit(train, dev) is mine
    assert mine.get_params() == before
    assert [item.trace for item in bench.learnable(detector)[0]] == [item.trace for item in train]


def check_one_class_is_refused(detector: LearnedDetector, bench: Bench) -> None:
    train, dev = bench.learnable(detector)
    for wanted in (True, False):
        alike = [item for item in train if response_label(item.example) == wanted]
        with pytest.raises(InputError, match="of both classes"):
            _new(detector).fit(alike, dev)


def check_missing_labels_are_refused(detector: LearnedDetector, bench: Bench) -> None:
    train, dev = bench.learnable(detector)
    bare = [*train, _relabelled(train[0], labels=None, hallucinated=None, id="bare")]
    with pytest.raises(InputError, match="'bare' has no labels"):
        _new(detector).fit(bare, dev)
    with pytest.raises(InputError, match="Got none"):
        _new(detector).fit([], dev)


def check_labels_are_as_fine_as_it_says(detector: LearnedDetector, bench: Bench) -> None:
    train, dev = bench.learnable(detector)
    assert detector.label_kinds and set(detector.label_kinds) <= set(ALL_KINDS)
    whole, held_out = ([_relabelled(item, labels=None) for item in part] for part in (train, dev))
    if "response" in detector.label_kinds:
        mine = _new(detector).fit(whole, held_out)
        assert all(np.isfinite(scores).all() for scores in scores_of(mine, bench.traces(mine)))
        return
    with pytest.raises(InputError, match=r"learns from labels of the kind .* has labels of the kind 'response'"):
        _new(detector).fit(whole, dev)


def check_traces_of_two_models_are_refused(detector: LearnedDetector, bench: Bench) -> None:
    train, dev = bench.learnable(detector)
    stranger = replace(train[-1].trace, fingerprint={**bench.fingerprint, "weights": "another"})
    with pytest.raises(InputError, match="of one model"):
        _new(detector).fit([*train[:-1], TracedExample(train[-1].example, stranger)], dev)


def check_shared_sources_are_refused(detector: LearnedDetector, bench: Bench) -> None:
    train, dev = bench.learnable(detector)
    with pytest.raises(InputError, match="must not share"):
        _new(detector).fit(train, [*dev, train[0]])


def check_a_refused_fit_leaves_what_was_learnt(detector: LearnedDetector, bench: Bench) -> None:
    train, dev = bench.learnable(detector)
    fitted = bench.ready(detector)
    traces = bench.traces(fitted)
    want = scores_of(fitted, traces)
    with pytest.raises(InputError):
        fitted.fit([item for item in train if not response_label(item.example)], dev)
    assert_same(scores_of(fitted, traces), want, rtol=0, atol=0)


LEARNED_CHECKS: list[Callable[[LearnedDetector, Bench], None]] = [
    value for name, value in list(globals().items()) if name.startswith("check_")
]
