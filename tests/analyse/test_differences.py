"""Heads and layers by label: what numpy and scipy say, many tests at once, and copying scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from groundscope import Example, Layout, Trace
from groundscope.analyse.differences import adjusted, signal_differences
from groundscope.errors import InputError
from groundscope.trace.traced import TracedExample

HEADS, LAYERS = "external_context_score", "parametric_knowledge_score"


def simulated(rng, responses=60, effect=0.0, layers=(1, 4), heads=3):
    """Traces whose head (4, 2) is higher by ``effect`` in faithful responses; two responses per source."""
    data = []
    for number in range(responses):
        wrong = bool(rng.random() < 0.4)
        tokens = int(rng.integers(2, 9))
        scores = rng.normal(size=(tokens, len(layers), heads)) + rng.normal(size=(len(layers), heads))
        scores[:, 1, 2] += 0.0 if wrong else effect
        layout = Layout.from_ids([1, 2, 3], np.arange(tokens), passages=[(0, 2)])
        knowledge = rng.random(size=(tokens, 6))
        trace = Trace(layout, {HEADS: scores.astype(np.float32), LAYERS: knowledge.astype(np.float32)}, "m", layers)
        example = Example("", (f"p{number // 2}",), "r", hallucinated=wrong, id=str(number), source_id=str(number // 2))
        data.append(TracedExample(example, trace))
    return data


@pytest.fixture(scope="module")
def data():
    return simulated(np.random.default_rng(0), effect=2.0)


def test_figures_are_those_of_numpy_and_scipy(data):
    found = signal_differences(data, HEADS, resamples=100)
    means = np.stack([item.trace[HEADS].astype(np.float64).mean(0) for item in data])
    wrong = np.array([item.example.hallucinated for item in data])
    assert [(p.layer, p.head) for p in found.places] == [(layer, head) for layer in (1, 4) for head in range(3)]
    assert (found.responses, found.hallucinated, found.sources) == (60, int(wrong.sum()), 30)
    for place, column in zip(found.places, means.reshape(60, -1).T, strict=True):
        assert place.difference.value == pytest.approx(column[~wrong].mean() - column[wrong].mean())
        assert place.pearson.value == pytest.approx(stats.pearsonr(column, wrong).statistic)
        assert place.difference.low < place.difference.value < place.difference.high
        assert place.pearson.low < place.pearson.value < place.pearson.high
    assert found.higher_when_faithful == sum(p.difference.value > 0 for p in found.places)


def test_the_head_that_differs_is_found_and_no_other(data):
    found = signal_differences(data, HEADS, resamples=20)
    assert [(p.layer, p.head) for p in found.significant()] == [(4, 2)]


def test_layers_have_no_heads(data):
    found = signal_differences(data, LAYERS, resamples=20)
    assert [(p.layer, p.head) for p in found.places] == [(i, None) for i in range(6)] and found.copying is None


def test_many_tests_at_once_give_few_false_alarms():
    rng = np.random.default_rng(1)
    alarms = [len(signal_differences(simulated(rng, 40), HEADS, resamples=2).significant()) > 0 for _ in range(60)]
    assert np.mean(alarms) <= 0.15


def test_relation_to_copying_scores_is_their_correlation(data):
    places = [(layer, head) for layer in (1, 4) for head in range(3)]
    plain = signal_differences(data, HEADS, resamples=50)
    copying = {place: float(value) for place, value in zip(places, [3, 1, 2, 5, 4, 9], strict=True)}
    found = signal_differences(data, HEADS, copying=copying, resamples=50).copying
    gaps, scores = [p.difference.value for p in plain.places], list(copying.values())
    assert found.heads == 6
    assert found.difference.value == pytest.approx(stats.pearsonr(scores, gaps).statistic)
    assert found.difference_ranks.value == pytest.approx(stats.spearmanr(scores, gaps).statistic)
    labels = [-p.pearson.value for p in plain.places]
    assert found.label.value == pytest.approx(stats.pearsonr(scores, labels).statistic)
    assert found.difference.low <= found.difference.value <= found.difference.high
    with pytest.raises(InputError, match="at least 3 heads"):
        signal_differences(data, HEADS, copying={(1, 0): 1.0}, resamples=2)


def test_what_cannot_be_compared_is_refused(data):
    faithful = [item for item in data if not item.example.hallucinated]
    with pytest.raises(InputError, match="both classes"):
        signal_differences(faithful, HEADS)
    with pytest.raises(InputError, match="layer axis"):
        signal_differences(data, "mmd")
    with pytest.raises(InputError, match="Got none"):
        signal_differences([], HEADS)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_adjusted_p_values_are_in_order_and_never_smaller(values):
    p = np.array(values)
    holm, bh = adjusted(p)
    assert (holm >= p).all() and (bh >= p - 1e-12).all() and (holm <= 1).all() and (bh <= holm + 1e-12).all()
    order = np.argsort(p, kind="stable")
    assert (np.diff(holm[order]) >= 0).all() and (np.diff(bh[order]) >= -1e-12).all()
    assert holm.min() == min(1, len(p) * p.min())


def test_unknown_p_values_do_not_count():
    holm, bh = adjusted(np.array([0.01, np.nan, 0.5]))
    assert holm[0] == pytest.approx(0.02) and np.isnan(holm[1]) and np.isnan(bh[1])
