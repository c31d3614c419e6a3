"""The balance of knowledge and context: ranking, scaling, choosing, and the released arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from groundscope.learn.balance import (
    Grid,
    Ranking,
    Side,
    Units,
    areas,
    correlations,
    reduce_units,
    side_of,
)


def some_units(rng, responses=12, heads=5, layers=4, label_of=None):
    """Units whose head 3 and layer 1 follow the label; (units, unit labels, response labels)."""
    parts, marks = [], []
    for index in range(responses):
        count = int(rng.integers(1, 6))
        marked = rng.random(count) < 0.5 if index % 2 else np.zeros(count, dtype=bool)
        marked[0] |= bool(index % 2)
        external, knowledge = rng.normal(size=(count, heads)), rng.normal(size=(count, layers))
        external[:, 3] -= 3 * marked
        knowledge[:, 1] += 3 * marked
        parts.append((external, knowledge))
        marks.append(marked)
    units = Units.joined(parts)
    return units, np.concatenate(marks), np.array([marked.any() for marked in marks])


@given(st.integers(2, 40), st.integers(0, 10**6), st.booleans())
def test_areas_and_correlations_equal_the_libraries(count, seed, coarse):
    rng = np.random.default_rng(seed)
    labels = rng.random(count) < 0.5
    labels[:2] = True, False
    values = rng.normal(size=(count, 3))
    if coarse:
        values = values.round()
    want = [roc_auc_score(labels, column) for column in values.T]
    np.testing.assert_allclose(areas(values, labels), want, atol=1e-12)
    got = correlations(values, labels)
    for column, value in zip(values.T, got, strict=True):
        if np.ptp(column):
            assert value == pytest.approx(np.corrcoef(column, labels)[0, 1], abs=1e-9)
        else:
            assert value == 0


def test_a_column_that_never_changes_counts_for_nothing():
    values = np.full((6, 1), 0.1) + np.array([0.0])
    assert correlations(values, np.array([0, 1, 0, 1, 0, 1], dtype=bool))[0] == 0
    side = side_of(values, np.array([0]), np.zeros(1), "paper", "equal")
    assert np.isfinite(side(values)).all()


def test_ranking_finds_the_head_that_falls_and_the_layer_that_rises():
    units, marks, _ = some_units(np.random.default_rng(0), 40)
    for variant in ("paper", "official"):
        ranking = Ranking.of(units, marks, np.arange(5), variant, "equal")
        assert ranking.heads[0] == 3 and ranking.layers[0] == 1
        only = Ranking.of(units, marks, np.array([0, 4]), variant, "equal")
        assert set(only.heads) == {0, 4}


def test_paper_scales_each_column_and_takes_means():
    units, marks, _ = some_units(np.random.default_rng(1))
    ranking = Ranking.of(units, marks, np.arange(5), "paper", "equal")
    z = ranking.balance(2, 3, 0.7)(units.external, units.knowledge)

    def scaled(values):
        return (values - values.min(axis=0)) / (values.max(axis=0) - values.min(axis=0))

    want = scaled(units.knowledge)[:, ranking.layers[:3]].mean(axis=1)
    want = want - 0.7 * scaled(units.external)[:, ranking.heads[:2]].mean(axis=1)
    np.testing.assert_allclose(z, want, atol=1e-12)


def test_official_takes_sums_and_scales_them():
    units, marks, _ = some_units(np.random.default_rng(2))
    ranking = Ranking.of(units, marks, np.arange(5), "official", "equal")
    z = ranking.balance(2, 3, 0.7)(units.external, units.knowledge)
    e = units.external[:, ranking.heads[:2]].sum(axis=1)
    p = units.knowledge[:, ranking.layers[:3]].sum(axis=1)
    want = (p - p.min()) / (p.max() - p.min()) - 0.7 * (e - e.min()) / (e.max() - e.min())
    np.testing.assert_allclose(z, want, atol=1e-12)


def test_weights_by_correlation():
    units, marks, _ = some_units(np.random.default_rng(3), 40)
    ranking = Ranking.of(units, marks, np.arange(5), "paper", "correlation")
    side = ranking.external(5)
    strength = np.maximum(ranking.context[ranking.heads], 0)
    np.testing.assert_allclose(side.weights, strength / strength.sum())
    assert side.weights[0] == side.weights.max() and side.weights.sum() == pytest.approx(1)
    hopeless = side_of(units.external, np.array([0, 1]), -np.ones(5), "paper", "correlation")
    np.testing.assert_allclose(hopeless.weights, [0.5, 0.5])


def test_scales_are_frozen_and_values_beyond_them_are_not_clipped():
    side = side_of(np.array([[0.0], [2.0]]), np.array([0]), np.ones(1), "paper", "equal")
    np.testing.assert_allclose(side(np.array([[-2.0], [1.0], [6.0]])), [-1, 0.5, 3])


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.integers(0, 10**6))
def test_reduction_is_by_response(lengths, seed):
    values = np.random.default_rng(seed).normal(size=(sum(lengths), 2))
    pieces = np.split(values, np.cumsum(lengths)[:-1])
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    np.testing.assert_allclose(reduce_units(values, starts, "mean"), [piece.mean(axis=0) for piece in pieces])
    np.testing.assert_allclose(reduce_units(values, starts, "max"), [piece.max(axis=0) for piece in pieces])


@pytest.mark.parametrize("variant", ["paper", "official"])
@pytest.mark.parametrize("reduction", ["mean", "max"])
def test_choice_is_the_best_of_the_grid(variant, reduction):
    units, marks, _ = some_units(np.random.default_rng(4), 20)
    other, _, truth = some_units(np.random.default_rng(5), 20)
    ranking = Ranking.of(units, marks, np.arange(5), variant, "equal")
    grid = Grid((1, 2, 4), (1, 3), (0.1, 0.6, 1.9))

    def area(heads, layers, beta):
        z = ranking.balance(heads, layers, beta)(other.external, other.knowledge)
        return roc_auc_score(truth, reduce_units(z, other.starts, reduction))

    found = {(n, k, b): area(n, k, b) for n in grid.heads for k in grid.layers for b in grid.betas}
    chosen = ranking.choose(grid, other, truth, reduction)
    assert found[chosen] == pytest.approx(max(found.values()), abs=1e-12)
    ties = [key for key, value in found.items() if value > max(found.values()) - 1e-9]
    assert chosen == min(ties)


def test_choice_depends_on_the_labels_it_is_given_and_ranking_does_not():
    units, marks, _ = some_units(np.random.default_rng(6), 20)
    other, _, truth = some_units(np.random.default_rng(7), 20)
    grid = Grid((1, 2, 3, 4, 5), (1, 2, 3, 4), (0.1, 1.0, 1.9))
    ranking = Ranking.of(units, marks, np.arange(5), "paper", "equal")
    rng = np.random.default_rng(8)
    choices = {ranking.choose(grid, other, rng.permutation(truth)) for _ in range(6)}
    assert len(choices) > 1


def test_sides_come_back_from_arrays():
    units, marks, _ = some_units(np.random.default_rng(9))
    side = Ranking.of(units, marks, np.arange(5), "paper", "correlation").external(3)
    again = Side.from_arrays("x", side.to_arrays("x"))
    np.testing.assert_array_equal(again(units.external), side(units.external))
