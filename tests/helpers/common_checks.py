"""What every detector must do, built in or from a plug-in.

A plug-in's tests run all of it by::

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_common(check, bench):
        check(MyDetector(), bench)

A detector that learns is fitted on the bench's labelled texts first; its tests run ``LEARNED_CHECKS``, of
``learned_checks``, in the same way.
"""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from bench import Bench

import groundscope as gs
from groundscope.detectors.base import Detector
from groundscope.errors import InputError
from groundscope.trace.signals import spec_of


def scores_of(detector: Detector, traces: list[gs.Trace]) -> list[np.ndarray]:
    # Copied, so that a detector that writes to what it returned before is found out.
    return [np.copy(detector.token_scores(trace)) for trace in traces]


def assert_same(got: list[np.ndarray], want: list[np.ndarray], rtol: float = 1e-3, atol: float = 1e-4) -> None:
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def check_it_says_what_it_is(detector: Detector, bench: Bench) -> None:
    for text in (detector.name, detector.summary, detector.reference, detector.aggregation, type(detector).__doc__):
        assert isinstance(text, str) and text.strip()
    assert isinstance(detector.needs_training, bool)
    assert isinstance(detector.window, int) and detector.window >= 1
    assert detector.signals or detector.own_signals
    assert len(set(detector.signals)) == len(detector.signals)
    assert detector.level in ("token", "response")
    specs = [spec_of(name) for name in detector.signals]
    assert detector.uses_contrast == any(spec.source == "contrast" for spec in specs)
    assert not set(detector.own_signals) & set(detector.signals)
    assert "higher" in (Detector.token_scores.__doc__ or "")


def check_the_constructor_only_stores_its_arguments(detector: Detector, bench: Bench) -> None:
    params = detector.get_params()
    learnt = {name for name in vars(detector) if name.endswith("_")}
    assert set(vars(detector)) - learnt == set(params)
    again = type(detector)(**params)
    assert all(getattr(again, name) is value for name, value in params.items())
    assert repr(again) == repr(detector) and type(detector).__name__ in repr(detector)


def check_scores_are_one_finite_number_per_token(detector: Detector, bench: Bench) -> None:
    traces = bench.traces(detector)
    assert traces[-1].tokens == 1
    for trace in traces:
        scores = detector.token_scores(trace)
        assert isinstance(scores, np.ndarray) and scores.dtype == np.float64
        assert scores.shape == (trace.tokens,) and np.isfinite(scores).all()
        response = detector.response_score(scores)
        assert type(response) is float and np.isfinite(response)


def check_scores_tell_texts_apart(detector: Detector, bench: Bench) -> None:
    if detector.level == "response":
        assert all(np.ptp(scores) == 0 for scores in scores_of(detector, bench.traces(detector)))
    assert np.ptp(np.concatenate(scores_of(detector, bench.traces(detector)))) > 0


def check_a_token_without_a_score_does_not_count(detector: Detector, bench: Bench) -> None:
    scores = detector.token_scores(bench.traces(detector)[0])
    hole = scores.copy()
    hole[1] = np.nan
    assert np.isfinite(detector.response_score(hole))


def check_batch_equals_single(detector: Detector, bench: Bench) -> None:
    single = scores_of(detector, bench.one_by_one(detector))
    assert_same(scores_of(detector, bench.traces(detector, batch_size=8)), single)


def check_padding_changes_nothing(detector: Detector, bench: Bench) -> None:
    left, right = (scores_of(detector, bench.traces(detector, padding_side=side)) for side in ("left", "right"))
    assert_same(left, right)


def check_it_is_deterministic(detector: Detector, bench: Bench) -> None:
    traces = bench.traces(detector)
    assert_same(scores_of(detector, traces), scores_of(detector, traces), rtol=0, atol=0)


def check_order_of_calls_does_not_matter(detector: Detector, bench: Bench) -> None:
    traces = bench.traces(detector)
    assert_same(scores_of(detector, traces[::-1])[::-1], scores_of(detector, traces), rtol=0, atol=0)


def check_more_signals_than_it_needs_change_nothing(detector: Detector, bench: Bench) -> None:
    assert_same(scores_of(detector, bench.full_traces(detector)), scores_of(detector, bench.traces(detector)))


def check_a_missing_signal_is_named(detector: Detector, bench: Bench) -> None:
    trace = bench.traces(detector)[0]
    for name in (*detector.signals, *detector.own_signals):
        held = {other: values for other, values in trace.items() if other != name}
        with pytest.raises(InputError, match=repr(name)):
            detector.token_scores(replace(trace, signals=held))


def check_the_trace_is_left_as_it_was(detector: Detector, bench: Bench) -> None:
    for trace in bench.traces(detector):
        before = {name: values.copy() for name, values in trace.items()}
        for values in trace.values():
            values.setflags(write=False)
        scores = detector.token_scores(trace)
        scores += 1  # the caller's own array: writing to it must not reach the trace
        assert list(trace) == list(before)
        for name, values in before.items():
            np.testing.assert_array_equal(trace[name], values)


def check_copies_and_pickles_score_the_same(detector: Detector, bench: Bench) -> None:
    traces = bench.traces(detector)
    want = scores_of(detector, traces)
    for other in (copy.deepcopy(detector), pickle.loads(pickle.dumps(detector))):
        assert other.get_params() == detector.get_params()
        assert_same(scores_of(other, traces), want, rtol=0, atol=0)


def _fitted_first(check: Callable[[Detector, Bench], None]) -> Callable[[Detector, Bench], None]:
    @functools.wraps(check)
    def run(detector: Detector, bench: Bench) -> None:
        check(bench.ready(detector), bench)

    return run


CHECKS: list[Callable[[Detector, Bench], None]] = [
    _fitted_first(value) for name, value in list(globals().items()) if name.startswith("check_")
]
