"""The linear probe: one product that equals scaler, selector and regression in a row."""

from __future__ import annotations

import json
import logging
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_selection import SelectKBest, f_classif
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from groundscope.errors import InputError
from groundscope.learn.probe import LinearProbe


def some_units(seed: int = 0, units: int = 120, features: int = 9) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(units, features)) * rng.uniform(0.01, 3, features) + rng.normal(size=features)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    return X, Z[:, 0] - Z[:, 2] + rng.normal(size=units) > 0.3


@pytest.mark.parametrize(("scaler", "peer"), [("minmax", MinMaxScaler()), ("standard", StandardScaler()), (None, None)])
@pytest.mark.parametrize("class_weight", ["balanced", None])
@pytest.mark.parametrize("selects", [True, False])
def test_it_equals_the_pipeline(scaler, peer, class_weight, selects):
    X, y = some_units()
    selector = SelectKBest(f_classif, k=4) if selects else None
    probe = LinearProbe(scaler, selector, C=0.5, class_weight=class_weight).fit(X, y)
    steps = [step for step in (peer, SelectKBest(f_classif, k=4) if selects else None) if step is not None]
    pipeline = make_pipeline(*steps, LogisticRegression(C=0.5, class_weight=class_weight, max_iter=1000)).fit(X, y)
    new, _ = some_units(seed=1)
    np.testing.assert_allclose(probe.decision(new), pipeline.decision_function(new), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(probe.probability(new), pipeline.predict_proba(new)[:, 1], rtol=1e-6)
    assert probe.selected_.sum() == (4 if selects else 9) and (probe.coef_[~probe.selected_] == 0).all()
    assert probe.converged_ and 0 < probe.iterations_ < 1000


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), scaler=st.sampled_from(["minmax", "standard", None]))
def test_the_mean_of_the_log_odds_is_the_log_odds_at_the_mean(seed, scaler):
    X, y = some_units(seed)
    probe = LinearProbe(scaler).fit(X, y)
    np.testing.assert_allclose(probe.decision(X).mean(), probe.decision(X.mean(axis=0)), rtol=1e-9, atol=1e-9)


def test_features_of_any_leading_shape_and_precision_are_scored():
    X, y = some_units()
    probe = LinearProbe("minmax").fit(X, y)
    np.testing.assert_allclose(probe.decision(X.reshape(4, 30, 9)).ravel(), probe.decision(X))
    np.testing.assert_allclose(probe.decision(X.astype(np.float32)), probe.decision(X), rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match=r"has 9 weights\. Got 8 features"):
        probe.decision(X[:, :8])


@pytest.mark.parametrize("scaler", ["minmax", "standard", None])
@pytest.mark.parametrize("constant", [0.0, 0.1, -1e6, 1e-300])
def test_a_column_that_does_not_vary_does_no_harm(scaler, constant):
    X, y = some_units()
    wider = np.column_stack([X, np.full(len(X), constant)])
    probe, narrow = LinearProbe(scaler).fit(wider, y), LinearProbe(scaler).fit(X, y)
    assert np.isfinite(probe.coef_).all()
    if scaler is not None:
        np.testing.assert_allclose(probe.decision(wider), narrow.decision(X), rtol=1e-3, atol=1e-3)


def test_rounding_is_no_variation():
    X, y = some_units()
    almost = np.where(y, 0.1 + 0.2, 0.3)
    assert np.ptp(almost) > 0
    probe = LinearProbe("minmax").fit(np.column_stack([X, almost]), y)
    assert abs(probe.coef_[-1] * np.ptp(almost)) < 1e-9


def test_that_it_did_not_converge_is_logged_and_kept(caplog):
    X, y = some_units()
    with caplog.at_level(logging.WARNING), warnings.catch_warnings():
        warnings.simplefilter("error")
        probe = LinearProbe("standard", max_iter=1).fit(X, y)
    assert not probe.converged_ and probe.iterations_ == 1
    assert "LogisticRegression did not converge" in caplog.text
    caplog.clear()
    assert LinearProbe("standard").fit(X, y).converged_ and not caplog.records


def test_arguments_are_left_as_they_are():
    X, y = some_units()
    selector = SelectKBest(f_classif, k=3)
    probe = LinearProbe("minmax", selector)
    before = X.copy()
    probe.fit(X, y)
    np.testing.assert_array_equal(X, before)
    assert not hasattr(selector, "scores_") and probe.selector is selector
    X.setflags(write=False)
    again = LinearProbe("minmax", selector).fit(X, y.astype(int))
    np.testing.assert_array_equal(again.coef_, probe.coef_)


def test_what_it_learnt_can_be_written_down():
    X, y = some_units()
    probe = LinearProbe("minmax", SelectKBest(f_classif, k=3)).fit(X, y)
    arrays, facts = probe.state()
    other = LinearProbe()
    other.restore(arrays, json.loads(json.dumps(facts)))
    np.testing.assert_array_equal(other.decision(X), probe.decision(X))
    assert (other.iterations_, other.converged_) == (probe.iterations_, probe.converged_)
    np.testing.assert_array_equal(other.selected_, probe.selected_)


@pytest.mark.parametrize(
    "damage",
    [
        {"coef": np.zeros((3, 3))},
        {"coef": np.zeros(8)},
        {"selected": np.ones(10, dtype=bool)},
        {"intercept": np.zeros(2)},
        {"intercept": np.array([np.nan])},
        {"coef": np.full(9, np.inf)},
    ],
)
def test_damaged_weights_are_refused(damage):
    X, y = some_units()
    arrays, facts = LinearProbe().fit(X, y).state()
    with pytest.raises(InputError, match="probe"):
        LinearProbe().restore({**arrays, **damage}, facts)


def test_what_cannot_be_learnt_from_is_refused():
    X, y = some_units()
    broken = X.copy()
    broken[3, 5] = np.nan
    for features, labels, reason in [
        (broken, y, r"finite features. Got nan \(unit 3, feature=5\)"),
        (np.where(broken == broken, broken, np.inf), y, "Got inf"),
        (X, np.ones(len(X)), r"units of both classes.*0 faithful and 120 hallucinated"),
        (X[:0], y[:0], "0 faithful and 0 hallucinated"),
        (X, y[:-1], "one label per unit"),
        (X[:, :0], y, "matrix"),
        (X[:, 0], y, "matrix"),
        (X, y.astype(float) + 1, "labels of 0 and 1"),
    ]:
        with pytest.raises(InputError, match=reason):
            LinearProbe("minmax").fit(features, labels)


@pytest.mark.parametrize(
    "params",
    [
        {"scaler": "max"}, {"C": 0}, {"C": -1.0}, {"C": float("inf")}, {"C": "1"}, {"C": True},
        {"class_weight": "even"}, {"max_iter": 0}, {"max_iter": 1.5},
    ],
)  # fmt: skip
def test_parameters_out_of_range_are_refused(params):
    with pytest.raises(InputError, match=rf"The '{next(iter(params))}' parameter of LinearProbe must be .* Got"):
        LinearProbe(**params)
