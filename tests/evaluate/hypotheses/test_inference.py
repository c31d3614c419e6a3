"""Two groups of tokens: published tests as scipy computes them, and inference by source that keeps its level."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from groundscope.errors import InputError
from groundscope.evaluate.hypotheses.inference import TokenValues, compare, excess, linearised, two_sided_p
from groundscope.evaluate.metrics.bootstrap import Resampler


def sides(rng, sources=12, tokens=30, spread=1.0, shift=0.0):
    """Two sides of as many sources each; tokens of a source share a deviation of size ``spread``."""
    codes = np.repeat(np.arange(2 * sources), tokens)
    values = rng.normal(size=2 * sources)[codes] * spread + rng.normal(size=len(codes))
    first = codes < sources
    values[first] += shift
    return tuple(TokenValues(values[m], codes[m], sources) for m in (first, ~first)), [
        str(i) for i in range(2 * sources)
    ]


def test_the_published_tests_are_those_of_scipy():
    rng = np.random.default_rng(0)
    (one, other), names = sides(rng, shift=0.3)
    found = compare(one, other, Resampler(names, 50)).result
    for test, equal in zip(found.per_token, (False, True), strict=True):
        want = stats.ttest_ind(one.values, other.values, equal_var=equal, alternative="greater")
        assert (test.t, test.p) == pytest.approx((want.statistic, want.pvalue))
    same = TokenValues(rng.normal(size=len(one.values)), one.source, one.responses)
    (test,) = compare(one, same, Resampler(names, 50), paired=True).result.per_token
    want = stats.ttest_rel(one.values, same.values, alternative="greater")
    assert (test.kind, test.t, test.p) == ("paired", pytest.approx(want.statistic), pytest.approx(want.pvalue))


def test_effect_sizes_equal_their_definitions():
    (one, other), names = sides(np.random.default_rng(1), shift=0.5)
    found = compare(one, other, Resampler(names, 200)).result
    pooled = np.sqrt((one.values.var(ddof=1) + other.values.var(ddof=1)) / 2)
    assert found.cohen_d.value == pytest.approx((one.values.mean() - other.values.mean()) / pooled)
    wins = (one.values[:, None] > other.values[None]).mean()
    assert found.auc.value == pytest.approx(wins)
    for figure in (found.difference, found.cohen_d, found.auc):
        assert figure.low < figure.value < figure.high


def test_sources_of_one_token_each_make_no_difference_to_the_t_test():
    (one, other), names = sides(np.random.default_rng(2), sources=40, tokens=1)
    found = compare(one, other, Resampler(names, 50)).result
    assert found.design_effect == pytest.approx(1, abs=0.03)
    assert found.clustered.t == pytest.approx(found.per_token[0].t, rel=0.02)


def test_copies_of_tokens_raise_the_design_effect_and_nothing_else():
    (one, other), names = sides(np.random.default_rng(3), sources=30, tokens=2)
    resampler = Resampler(names, 50)
    once = compare(one, other, resampler).result
    copied = [TokenValues(np.tile(s.values, 9), np.tile(s.source, 9), s.responses) for s in (one, other)]
    often = compare(*copied, resampler).result
    assert often.clustered.t == pytest.approx(once.clustered.t)
    assert often.per_token[0].t == pytest.approx(3 * once.per_token[0].t, rel=0.02)
    assert often.effective_tokens == pytest.approx(once.effective_tokens, rel=0.05)


def test_level_is_kept_by_source_and_lost_by_token():
    rng = np.random.default_rng(4)
    rejected = {"welch": 0, "clustered": 0, "bootstrap": 0}
    runs = 150
    for run in range(runs):
        (one, other), names = sides(rng, sources=25, tokens=20, spread=1.0)
        found = compare(one, other, Resampler(names, 120, seed=run)).result
        rejected["welch"] += found.per_token[0].p < 0.05
        rejected["clustered"] += found.clustered.p < 0.05
        rejected["bootstrap"] += found.bootstrap_p < 0.05
    # Two standard errors of a share of 5 % in 150 runs are 3.6 points; the bootstrap is slightly liberal.
    assert 0.01 <= rejected["clustered"] / runs <= 0.09
    assert 0.01 <= rejected["bootstrap"] / runs <= 0.11
    assert rejected["welch"] / runs > 0.22


def test_level_of_a_paired_comparison():
    rng = np.random.default_rng(5)
    rejected = np.zeros(2)
    for run in range(120):
        codes = np.repeat(np.arange(30), 20)
        gap = rng.normal(size=30)[codes] * 0.7 + rng.normal(size=len(codes))
        base = rng.normal(size=len(codes))
        pair = TokenValues(base + gap, codes, 30), TokenValues(base, codes, 30)
        found = compare(*pair, Resampler([str(i) for i in range(30)], 20, seed=run), paired=True).result
        rejected += found.per_token[0].p < 0.05, found.clustered.p < 0.05
    assert rejected[0] > 30 and 1 <= rejected[1] <= 12


def test_the_same_tokens_on_both_sides_differ_by_exactly_nothing():
    (one, _), names = sides(np.random.default_rng(6))
    found = compare(one, one, Resampler(names, 50), paired=True).result
    assert (found.difference.value, found.difference.low, found.difference.high) == (0, 0, 0)
    assert found.per_token[0].t is None and found.clustered.t is None and found.bootstrap_p is None
    assert found.cohen_d.value is None and found.auc.value == 0.5


def test_one_source_on_a_side_has_a_value_and_no_interval():
    one = TokenValues(np.array([1.0, 2.0, 4.0]), np.zeros(3, dtype=np.int64), 1)
    other = TokenValues(np.array([0.0, 1.0]), np.array([1, 2]), 2)
    found = compare(one, other, Resampler(["a", "b", "c"], 50)).result
    assert found.difference.value == pytest.approx(7 / 3 - 0.5) and found.difference.low is None
    assert found.clustered is None and found.bootstrap_p is None and found.design_effect is None


def test_excess_is_the_difference_of_differences():
    rng = np.random.default_rng(7)
    (one, other), names = sides(rng, shift=1.0)
    resampler = Resampler(names, 200)
    real = compare(one, other, resampler)
    assert excess(real, real, resampler).low == excess(real, real, resampler).high == 0
    (third, fourth), _ = sides(rng)
    placebo = compare(third, fourth, resampler)
    left = excess(real, placebo, resampler)
    assert left.value == pytest.approx(real.result.difference.value - placebo.result.difference.value)
    assert left.low < left.value < left.high


def test_wrong_sides_are_refused():
    whole = TokenValues(np.ones(2), np.zeros(2, dtype=np.int64), 1)
    empty = TokenValues(np.ones(0), np.zeros(0, dtype=np.int64), 0)
    resampler = Resampler(["a", "b"], 10)
    with pytest.raises(InputError, match="empty"):
        compare(whole, empty, resampler)
    with pytest.raises(InputError, match="same tokens"):
        compare(whole, TokenValues(np.ones(2), np.ones(2, dtype=np.int64), 1), resampler, paired=True)
    with pytest.raises(InputError, match="one source per token"):
        TokenValues(np.ones(2), np.zeros(3, dtype=np.int64), 1)
    with pytest.raises(InputError, match="finite"):
        TokenValues(np.array([np.nan]), np.zeros(1, dtype=np.int64), 1)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(-1e4, 1e4), st.floats(0.01, 100))
def test_shifting_and_stretching_all_values_changes_no_test(seed, shift, factor):
    (one, other), names = sides(np.random.default_rng(seed), sources=5, tokens=6)
    moved = [TokenValues(factor * s.values + shift, s.source, s.responses) for s in (one, other)]
    resampler = Resampler(names, 20)
    plain, same = compare(one, other, resampler).result, compare(*moved, resampler).result
    assert same.clustered.t == pytest.approx(plain.clustered.t, rel=1e-5, abs=1e-5)
    assert same.cohen_d.value == pytest.approx(plain.cohen_d.value, rel=1e-5, abs=1e-5)
    assert same.difference.value == pytest.approx(factor * plain.difference.value, rel=1e-5, abs=1e-5 * factor)


def test_many_columns_are_tested_as_each_alone():
    rng = np.random.default_rng(8)
    columns, first, codes = rng.normal(size=(60, 4)), rng.random(60) < 0.4, rng.integers(0, 15, 60)
    together = linearised(columns, first, codes)
    for i in range(4):
        alone = linearised(columns[:, i : i + 1], first, codes)
        assert together.difference[i] == pytest.approx(alone.difference[0])
        assert two_sided_p(together)[i] == pytest.approx(two_sided_p(alone)[0])
