"""The selectors of AggTruth, against scipy, by hand and at the edges."""

from __future__ import annotations

import importlib.util
import logging

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from groundscope.errors import InputError, PrerequisiteError, UnknownNameError
from groundscope.learn.selectors import (
    SELECTORS,
    BorutaSelector,
    CenterSelector,
    LassoSelector,
    PointBiserialSelector,
    RandomPlusSelector,
    RandomSelector,
    SpearmanSelector,
    selector_from_name,
)

# Boruta grows forests, which takes minutes here; it has a test of its own.
HERE = [name for name in SELECTORS if name != "boruta"]


def some_units(seed: int = 0, units: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Columns 0 and 1 rise with the label, 2 falls, 3 to 9 are noise; all in [0, 1]."""
    # Away from the seeds of the selectors, whose random columns would be the numbers that made the labels.
    rng = np.random.default_rng(1000 + seed)
    y = rng.random(units) < 0.4
    X = rng.normal(size=(units, 10))
    X[:, 0] += 1.5 * y
    X[:, 1] += 0.8 * y
    X[:, 2] -= 1.5 * y
    return MinMaxScaler().fit_transform(X), y


def kept(selector, X, y) -> list[int]:
    return selector.fit(X, y).get_support(indices=True).tolist()


@pytest.mark.parametrize(
    ("cls", "peer"), [(SpearmanSelector, stats.spearmanr), (PointBiserialSelector, stats.pointbiserialr)]
)
def test_correlations_equal_those_of_scipy(cls, peer):
    X, y = some_units(units=60)
    X[:, 4] = np.round(X[:, 4], 1)  # ties
    found = [peer(X[:, column], y) for column in range(10)]
    selector = cls(p_value=0.05).fit(X, y)
    np.testing.assert_allclose(selector.merits_, [abs(one.statistic) for one in found], atol=1e-12)
    np.testing.assert_array_equal(selector.get_support(), [one.pvalue < 0.05 for one in found])
    assert found[2].statistic < 0 and selector.get_support()[2]
    # A limit between two p-values separates the two columns.
    order = sorted(one.pvalue for one in found)
    assert cls(p_value=float(np.sqrt(order[4] * order[5]))).fit(X, y).get_support().sum() == 5


def test_more_columns_than_are_ranked_at_a_time():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(50, 150)), rng.random(50) < 0.5
    want = [abs(stats.spearmanr(X[:, column], y).statistic) for column in range(150)]
    np.testing.assert_allclose(SpearmanSelector().fit(X, y).merits_, want, atol=1e-12)


@pytest.mark.parametrize("cls", [SpearmanSelector, PointBiserialSelector])
def test_a_share_of_all_columns_is_kept_strongest_first(cls):
    X, y = some_units()
    strength = cls().fit(X, y).merits_
    assert set(np.argsort(-strength)[:3]) == {0, 1, 2}
    assert kept(cls(fraction=1.0), X, y) == [0, 1, 2]  # the rest is not significant
    assert kept(cls(fraction=0.25), X, y) == sorted(np.argsort(-strength)[:2].tolist())
    assert kept(cls(fraction=0.01), X, y) == [int(np.argmax(strength))]
    assert kept(cls(fraction="auto"), X, y) == np.flatnonzero(strength > strength.max() / 2).tolist()
    assert kept(cls(fraction=1.0, p_value=1.0), X, y) == list(range(10))


def test_a_column_that_tells_all_has_no_p_value_problem():
    X, y = some_units()
    X[:, 5] = y
    selector = PointBiserialSelector(fraction=0.1).fit(X, y)
    assert selector.get_support(indices=True).tolist() == [5] and selector.merits_[5] == pytest.approx(1)


def test_two_units_are_too_few_for_significance():
    selector = SpearmanSelector().fit(np.array([[0.0, 1.0], [1.0, 1.0]]), np.array([0, 1]))
    assert selector.get_support().tolist() == [True, False]


def test_lasso_keeps_what_has_a_weight():
    X, y = some_units()
    assert set(kept(LassoSelector(strength=0.2), X, y)) == {0, 1, 2}
    assert len(kept(LassoSelector(strength=1e-4), X, y)) == 10
    scaled = LassoSelector(strength=0.2).fit(X * 50, y)
    assert scaled.get_support(indices=True).tolist() == kept(LassoSelector(strength=0.2), X, y)


def test_center_keeps_as_many_of_the_highest_as_of_the_lowest_ratios():
    y = np.array([0, 0, 0, 1, 1, 1])
    ratios = np.array([3.0, 0.2, 1.0, 1.1, 0.9, 2.0, 0.5, 1.0])
    X = np.where(y[:, None] == 1, ratios, 1.0) * np.array([0.9, 1, 1.1, 0.9, 1, 1.1])[:, None]
    assert kept(CenterSelector(fraction=0.25), X, y) == [0, 1]
    assert kept(CenterSelector(fraction=0.5), X, y) == [0, 1, 5, 6]
    assert kept(CenterSelector(fraction=0.01), X, y) == [0, 1]
    assert kept(CenterSelector(fraction=1.0), X, y) == list(range(8))
    # The direction of the ratio does not matter.
    assert kept(CenterSelector(fraction=0.5), X, 1 - y) == [0, 1, 5, 6]


def test_center_counts_as_the_paper_reports():
    rng = np.random.default_rng(0)
    X, y = rng.random((30, 673)), np.arange(30) % 2
    # 42 x 16 heads and the passage percentage: 49.9 % are kept for r = 0.5.
    assert CenterSelector(fraction=0.5).fit(X, y).get_support().sum() == 336


def test_center_knows_medians_of_zero():
    y = np.array([0, 0, 0, 1, 1, 1])
    rows = {
        "infinite": [0, 0, 1, 2, 2, 0],
        "minus infinite": [0, 0, 1, -2, -2, 0],
        "both zero": [0, 0, 1, 0, 0, 1],
        "zero above": [2, 2, 1, 0, 0, 1],
        "plain": [2, 2, 2, 3, 3, 2],
        "negative zero": [-0.0, -0.0, -1, 1, 1, 1],
    }
    X = np.array(list(rows.values()), dtype=float).T
    # Of two infinite ratios the later column counts as the higher.
    assert [list(rows)[i] for i in kept(CenterSelector(fraction=0.34), X, y)] == ["minus infinite", "negative zero"]
    assert [list(rows)[i] for i in kept(CenterSelector(fraction=0.67), X, y)] == [
        "infinite", "minus infinite", "zero above", "negative zero",
    ]  # fmt: skip


def test_random_drops_what_matters_no_more_than_noise():
    X, y = some_units()
    chosen = kept(RandomSelector(n=5, k=5, C=10.0), X, y)
    assert {0, 1, 2} <= set(chosen) and len(chosen) < 10
    assert set(chosen) <= set(kept(RandomSelector(n=5, k=1, C=10.0), X, y))
    plus = kept(RandomPlusSelector(n=5, k=5, C=10.0), X, y)
    assert {0, 1} <= set(plus) and 2 not in plus


def test_random_is_the_definition():
    X, y = some_units(3)
    rng = np.random.default_rng(7)
    marks = np.zeros(10)
    for _ in range(3):
        wider = np.column_stack([X, rng.random(len(X))])
        weights = LogisticRegression(C=0.01, class_weight="balanced", max_iter=10000).fit(wider, y).coef_[0]
        marks += np.abs(weights[:-1]) > np.abs(weights[-1])
    assert kept(RandomSelector(n=3, k=2, seed=7), X, y) == np.flatnonzero(marks >= 2).tolist()


@pytest.mark.parametrize("name", HERE)
def test_columns_that_do_not_vary_are_never_kept(name):
    X, y = some_units()
    X[:, [1, 4, 8]] = [0.0, 0.5, 1.0]
    for params in ({}, {"fraction": 1.0, "p_value": 1.0} if name in ("spearman", "point-biserial") else {}):
        selector = selector_from_name(name, **params).fit(X, y)
        assert not selector.get_support()[[1, 4, 8]].any() and selector.get_support().any()
    only = np.zeros((len(X), 3))
    only[:, 2] = X[:, 3]
    assert selector_from_name(name).fit(only, y).get_support().tolist() == [False, False, True]


@pytest.mark.parametrize("name", HERE)
def test_what_nothing_can_be_chosen_from_is_refused(name):
    X, y = some_units()
    selector = selector_from_name(name)
    for features, labels, reason in [
        (np.ones_like(X), y, "needs a column that varies. All 10 are constant"),
        (X, np.zeros(len(X)), "of both classes"),
        (np.where(X > 0.9, np.nan, X), y, "finite features"),
        (X, y[:-1], "one label per unit"),
        (X[:, :0], y, "matrix"),
    ]:
        with pytest.raises(InputError, match=reason):
            selector.fit(features, labels)
    with pytest.raises(NotFittedError):
        selector_from_name(name).get_support()


@pytest.mark.parametrize(
    "selector",
    [
        SpearmanSelector(p_value=1e-300),
        PointBiserialSelector(fraction="auto", p_value=1e-300),
        LassoSelector(strength=1.0),
        RandomPlusSelector(n=1, k=1),
    ],
)
def test_where_nothing_passes_the_closest_is_kept_and_it_is_said(selector, caplog):
    X, y = some_units()
    X = X[:, [2, 3, 0]] if not isinstance(selector, RandomPlusSelector) else -X[:, :1]
    with caplog.at_level(logging.WARNING):
        mask = selector.fit(X, y).get_support()
    assert mask.sum() == 1 and mask[np.argmax(selector.merits_)]
    assert "found no column that passes; it keeps the one that comes closest" in caplog.text


@pytest.mark.parametrize("name", HERE)
def test_they_are_scikit_learns(name):
    X, y = some_units()
    selector = selector_from_name(name)
    twin = clone(selector)
    assert type(twin) is type(selector) and twin.get_params() == selector.get_params()
    before = X.copy()
    assert selector.fit(X, y) is selector and selector.n_features_in_ == 10
    np.testing.assert_array_equal(X, before)
    np.testing.assert_array_equal(twin.fit(X, y).get_support(), selector.get_support())
    np.testing.assert_array_equal(selector.transform(X), X[:, selector.get_support()])
    pipeline = make_pipeline(MinMaxScaler(), clone(selector), LogisticRegression()).fit(X, y)
    assert pipeline.score(X, y) > 0.6


@pytest.mark.slow
def test_boruta_is_used_if_it_is_there_and_asked_for_if_not():
    X, y = some_units()
    if importlib.util.find_spec("boruta"):
        assert {0, 2} <= set(kept(BorutaSelector(max_iter=12, max_depth=3), X, y))
    else:
        with pytest.raises(PrerequisiteError, match=r"Install it: pip install 'groundscope\[boruta\]'"):
            BorutaSelector().fit(X, y)


def test_names():
    assert isinstance(selector_from_name("random-plus", n=4, k=2), RandomPlusSelector)
    with pytest.raises(UnknownNameError, match=r"Unknown selector 'spearmen'\. Did you mean 'spearman'"):
        selector_from_name("spearmen")
    with pytest.raises(InputError, match="'lasso' cannot be made with"):
        selector_from_name("lasso", alpha=3)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("spearman", {"fraction": 0}),
        ("spearman", {"fraction": 1.2}),
        ("spearman", {"fraction": "all"}),
        ("spearman", {"p_value": 0}),
        ("point-biserial", {"p_value": float("nan")}),
        ("lasso", {"strength": -1}),
        ("lasso", {"max_iter": 0}),
        ("center", {"fraction": None}),
        ("random", {"n": 0}),
        ("random", {"k": 4}),
        ("random", {"seed": -1}),
        ("random", {"seed": True}),
        ("random-plus", {"C": 0}),
        ("random-plus", {"class_weight": "even"}),
        ("boruta", {"max_iter": 0}),
        ("boruta", {"max_depth": 0}),
        ("boruta", {"seed": 0.5}),
    ],
)
def test_parameters_out_of_range_are_refused(name, params):
    owner = SELECTORS[name].__name__
    with pytest.raises(InputError, match=rf"The '{next(iter(params))}' parameter of {owner} must be .* Got"):
        selector_from_name(name, **params)
