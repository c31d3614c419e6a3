"""What every detector must do, built in or from a plug-in.

A plug-in's tests run all of it by::

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_common(check, bench):
        check(MyDetector(), bench)
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

import groundscope as gs
from groundscope.detectors.base import Detector
from groundscope.errors import InputError
from groundscope.trace.signals import SIGNALS
from reference import VOCAB, families, random_case


@dataclass(frozen=True)
class Bench:
    """A real, tiny model and layouts of unequal length, the last one with a response of one token."""

    lm: gs.LanguageModel
    layouts: list[gs.Layout]

    @classmethod
    def make(cls) -> Bench:
        rng = np.random.default_rng(17)
        cases = [random_case(rng, VOCAB, passages, response_length=(5, 12)) for passages in (1, 3, 2, 1)]
        cases.append(random_case(rng, VOCAB, 1, response_length=(1, 1)))
        layouts = [
            gs.Layout.from_ids(
                case.prompt_ids,
                case.response_ids,
                passages=case.passages,
                header=case.header,
                contrast_prompt_ids=case.contrast_prompt_ids,
            )
            for case in cases
        ]
        return cls(gs.LanguageModel(families.build("llama"), name="tiny-llama"), layouts)

    def traces(self, detector: Detector, **options) -> list[gs.Trace]:
        return self.lm.trace(self.layouts, detector.signals, **options)


def _scores(detector: Detector, traces: list[gs.Trace]) -> list[np.ndarray]:
    # Copied, so that a detector that writes to what it returned before is found out.
    return [np.copy(detector.token_scores(trace)) for trace in traces]


def _assert_same(got: list[np.ndarray], want: list[np.ndarray], rtol: float = 1e-3, atol: float = 1e-4) -> None:
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def check_it_says_what_it_is(detector: Detector, bench: Bench) -> None:
    for text in (detector.name, detector.summary, detector.reference, detector.aggregation, type(detector).__doc__):
        assert isinstance(text, str) and text.strip()
    assert isinstance(detector.needs_training, bool)
    assert isinstance(detector.window, int) and detector.window >= 1
    assert detector.signals and len(set(detector.signals)) == len(detector.signals)
    assert set(detector.signals) <= set(SIGNALS)
    assert detector.uses_contrast == any(SIGNALS[name].source == "contrast" for name in detector.signals)
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


def check_scores_tell_tokens_apart(detector: Detector, bench: Bench) -> None:
    assert all(np.ptp(scores) > 0 for scores in _scores(detector, bench.traces(detector)[:-1]))


def check_a_token_without_a_score_does_not_count(detector: Detector, bench: Bench) -> None:
    scores = detector.token_scores(bench.traces(detector)[0])
    hole = scores.copy()
    hole[1] = np.nan
    assert np.isfinite(detector.response_score(hole))


def check_batch_equals_single(detector: Detector, bench: Bench) -> None:
    single = [detector.token_scores(bench.lm.trace(layout, detector.signals)) for layout in bench.layouts]
    _assert_same(_scores(detector, bench.traces(detector, batch_size=8)), single)


def check_padding_changes_nothing(detector: Detector, bench: Bench) -> None:
    left, right = (_scores(detector, bench.traces(detector, padding_side=side)) for side in ("left", "right"))
    _assert_same(left, right)


def check_it_is_deterministic(detector: Detector, bench: Bench) -> None:
    traces = bench.traces(detector)
    _assert_same(_scores(detector, traces), _scores(detector, traces), rtol=0, atol=0)


def check_order_of_calls_does_not_matter(detector: Detector, bench: Bench) -> None:
    traces = bench.traces(detector)
    _assert_same(_scores(detector, traces[::-1])[::-1], _scores(detector, traces), rtol=0, atol=0)


def check_more_signals_than_it_needs_change_nothing(detector: Detector, bench: Bench) -> None:
    more = bench.lm.trace(bench.layouts, list(SIGNALS))
    _assert_same(_scores(detector, more), _scores(detector, bench.traces(detector)))


def check_a_missing_signal_is_named(detector: Detector, bench: Bench) -> None:
    trace = bench.traces(detector)[0]
    for name in detector.signals:
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
    want = _scores(detector, traces)
    for other in (copy.deepcopy(detector), pickle.loads(pickle.dumps(detector))):
        assert other.get_params() == detector.get_params()
        _assert_same(_scores(other, traces), want, rtol=0, atol=0)


CHECKS: list[Callable[[Detector, Bench], None]] = [
    value for name, value in list(globals().items()) if name.startswith("check_")
]
