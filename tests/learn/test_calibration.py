"""Scales learnt from numbers without labels."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from groundscope.errors import InputError
from groundscope.learn.calibration import CALIBRATIONS, Rank, ZScore

NUMBERS = arrays(np.float64, st.integers(2, 60), elements=st.floats(-1e6, 1e6))
DISTINCT = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60, unique=True).map(np.array)


@given(NUMBERS, st.floats(-1e3, 1e3), st.floats(0.01, 1e3))
def test_z_scores_of_the_reference_have_mean_0_and_spread_1(values, shift, scale):
    if np.ptp(values) < 1e-3:
        return
    z = ZScore.fit(values).transform(values)
    assert z.mean() == pytest.approx(0, abs=1e-6) and z.std() == pytest.approx(1, rel=1e-6)
    moved = scale * values + shift
    np.testing.assert_allclose(ZScore.fit(moved).transform(moved), z, rtol=1e-4, atol=1e-4)


@given(DISTINCT)
def test_ranks_of_the_reference_are_evenly_spaced(values):
    n = len(values)
    ranks = Rank.fit(values).transform(values)
    np.testing.assert_allclose(np.sort(ranks), (np.arange(n) + 0.5) / n)
    assert (np.argsort(values) == np.argsort(ranks)).all()


@given(NUMBERS)
def test_ranks_of_the_reference_have_mean_one_half_whatever_is_tied(values):
    assert Rank.fit(values).transform(values).mean() == pytest.approx(0.5)


@given(st.sampled_from(sorted(CALIBRATIONS)), NUMBERS, NUMBERS)
def test_order_is_kept(name, reference, values):
    if np.ptp(reference) < 1e-3:
        return
    found = CALIBRATIONS[name].fit(reference).transform(np.sort(values))
    assert (np.diff(found) >= 0).all() and np.isfinite(found).all()
    if name == "rank":
        assert found.min() >= 0 and found.max() <= 1


def test_ranks_by_hand():
    rank = Rank.fit([3.0, 1.0, 1.0, 2.0])
    np.testing.assert_allclose(rank.transform([0.0, 1.0, 1.5, 2.0, 3.0, 9.0]), [0, 0.25, 0.5, 0.625, 0.875, 1])


def test_a_large_reference_is_kept_as_quantiles_to_a_thousandth():
    values = np.random.default_rng(0).gamma(2, size=30_000)
    rank = Rank.fit(values)
    assert len(rank.reference) == 1000
    exact = (np.argsort(np.argsort(values)) + 0.5) / len(values)
    assert np.abs(rank.transform(values) - exact).max() < 1.1e-3


@pytest.mark.parametrize("name", sorted(CALIBRATIONS))
def test_what_was_learnt_survives_json(name):
    values = np.random.default_rng(1).normal(size=300)
    fitted = CALIBRATIONS[name].fit(values)
    again = CALIBRATIONS[name].from_state(json.loads(json.dumps(fitted.state())))
    np.testing.assert_array_equal(again.transform(values[:20]), fitted.transform(values[:20]))
    assert fitted.name == name


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf"), 0.0]])
@pytest.mark.parametrize("name", sorted(CALIBRATIONS))
def test_a_reference_that_is_none_is_refused(name, values):
    with pytest.raises(InputError, match="needs at least one reference value, and all of them finite"):
        CALIBRATIONS[name].fit(values)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e9])
def test_a_z_score_needs_numbers_that_differ(value):
    with pytest.raises(InputError, match="values that differ"):
        ZScore.fit([value] * 7)
    assert Rank.fit([value] * 7).transform([value]) == [0.5]


@pytest.mark.parametrize("state", [[], [1.0], [0.0, 0.0], [0.0, float("nan")], [1.0, 2.0, 3.0]])
def test_damaged_z_scores_are_refused(state):
    with pytest.raises(InputError, match="mean and standard deviation"):
        ZScore.from_state(state)


@pytest.mark.parametrize("state", [[], [float("nan")], [2.0, 1.0], [[1.0]]])
def test_damaged_ranks_are_refused(state):
    with pytest.raises(InputError, match="Ranks are kept as"):
        Rank.from_state(state)
