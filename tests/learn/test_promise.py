"""A promise is kept on scores of any distribution, as often as it says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from groundscope.errors import InputError
from groundscope.learn.promise import Promise, precision_line


@pytest.mark.parametrize(
    ("alpha", "confidence", "needed"), [(0.05, 0.9, 45), (0.1, 0.9, 22), (0.1, 0.95, 29), (0.5, 0.5, 1)]
)
def test_the_fewest_answers_are_those_of_the_exact_bound(alpha, confidence, needed):
    promise = Promise(alpha, confidence)
    assert promise.needed == needed
    assert (1 - alpha) ** needed <= 1 - confidence + 1e-12 < (1 - alpha) ** (needed - 1) + 1e-12
    assert promise.allowed(needed - 1) is None
    assert promise.allowed(needed) == 0


@given(st.integers(1, 2000), st.floats(0.01, 0.6), st.floats(0.5, 0.99))
def test_as_many_are_allowed_as_the_bound_bears(count, alpha, confidence):
    k = Promise(alpha, confidence).allowed(count)
    if k is None:
        assert binom.cdf(0, count, alpha) > (1 - confidence) * (1 - 1e-6)
    else:
        assert binom.cdf(k, count, alpha) <= 1 - confidence + 1e-9
        assert binom.cdf(k + 1, count, alpha) > 1 - confidence


@pytest.mark.parametrize("draw", ["normal", "standard_cauchy", "ties"])
@pytest.mark.parametrize(("alpha", "confidence", "count"), [(0.05, 0.9, 60), (0.1, 0.9, 100), (0.2, 0.8, 37)])
def test_a_thousand_draws_break_the_promise_no_oftener_than_stated(draw, alpha, confidence, count):
    rng = np.random.default_rng(0)

    def sample(size):
        if draw == "ties":
            return rng.integers(0, 12, size).astype(float)
        return getattr(rng, draw)(size=size)

    population = np.sort(sample(200_000))
    promise = Promise(alpha, confidence)
    lines = np.array([promise.line(sample(count)) for _ in range(1000)])
    rates = 1 - np.searchsorted(population, lines, side="left") / len(population)
    broken = int((rates > alpha + 0.002).sum())
    # What a thousand draws at exactly the stated risk exceed once in ten thousand times.
    assert broken <= binom.ppf(0.9999, 1000, 1 - confidence)
    if draw != "ties":  # and the line is no stricter than it must be
        assert broken >= binom.ppf(0.0001, 1000, binom.cdf(promise.allowed(count), count, alpha)) - 5


def test_precision_is_kept_in_a_thousand_draws():
    rng = np.random.default_rng(1)

    def sample(size):
        labels = rng.random(size) < 0.3
        return labels, rng.normal(size=size) + 2 * labels

    truth, scores = sample(400_000)
    broken = found = 0
    for _ in range(1000):
        try:
            line = precision_line(*sample(300), 0.8, 0.9)
        except InputError:
            continue
        found += 1
        broken += truth[scores >= line].mean() < 0.8 - 0.003
    assert found > 300
    assert broken <= binom.ppf(0.9999, 1000, 0.1)


def test_too_few_are_refused_with_the_number_that_is_needed():
    with pytest.raises(InputError, match=r"from 45 faithful answers on\. Got 30"):
        Promise(0.05, 0.9).line(np.arange(30.0))
    with pytest.raises(InputError, match="At least 12 are needed"):
        precision_line([True] * 11, np.arange(11.0), 0.8, 0.9)


@pytest.mark.parametrize("value", [0, 1, -0.1, 1.5, float("nan"), "0.1", True, None])
def test_what_cannot_be_promised_is_refused(value):
    with pytest.raises(InputError, match="max_false_alarm"):
        Promise(value, 0.9)
    with pytest.raises(InputError, match="confidence"):
        Promise(0.1, value)
    with pytest.raises(InputError, match="precision"):
        precision_line([True, False], [1.0, 0.0], value)


def test_scores_that_are_not_finite_are_refused():
    with pytest.raises(InputError, match="finite"):
        Promise(0.5, 0.5).line([0.0, np.nan])
    with pytest.raises(InputError, match="One label per score"):
        precision_line([True], [1.0, 0.0], 0.5, 0.5)
