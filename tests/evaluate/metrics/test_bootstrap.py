from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from groundscope.errors import InputError
from groundscope.evaluate.metrics.binary import auroc, count, pearson
from groundscope.evaluate.metrics.bootstrap import Resampler


def clustered(groups: int = 40, size: int = 12, seed: int = 0):
    """Units of a source are alike: same label, nearly the same score."""
    rng = np.random.default_rng(seed)
    labels = rng.random(groups) < 0.4
    scores = rng.normal(size=groups) + 0.7 * labels
    names = np.repeat([f"source {i}" for i in range(groups)], size)
    return names, np.repeat(labels, size), np.repeat(scores, size) + rng.normal(scale=0.01, size=groups * size)


def test_draws_equal_resampling_by_hand():
    names, labels, scores = clustered(groups=9, size=3)
    scores = np.round(scores)  # ties
    found = Resampler(list(names), resamples=25)
    roc, pr = found.ranking(found.codes, labels, scores)
    correlation = found.correlation(found.codes, labels, scores)
    flagged = scores >= 0
    counts = np.stack([labels & flagged, ~labels & flagged, labels & ~flagged], axis=1).astype(float)
    rates = found.counted(found.codes, counts)
    for draw, weights in enumerate(found.weights):
        rows = np.repeat(np.arange(len(labels)), weights[found.codes].astype(int))
        if labels[rows].all() or not labels[rows].any():
            assert np.isnan(roc[draw])
            continue
        assert roc[draw] == pytest.approx(roc_auc_score(labels[rows], scores[rows]))
        assert pr[draw] == pytest.approx(average_precision_score(labels[rows], scores[rows]))
        assert correlation[draw] == pytest.approx(pearson(labels[rows], scores[rows]), nan_ok=True)
        by_hand = count(labels[rows], flagged[rows])
        for name in ("precision", "recall", "f1", "iou"):
            assert rates[name][draw] == pytest.approx(getattr(by_hand, name), nan_ok=True)


def test_many_distinct_scores_are_binned_without_moving_the_figure():
    names, labels, scores = clustered(groups=60, size=20)
    found = Resampler(list(names), resamples=400)
    exact, exact_pr = found.ranking(found.codes, labels, scores, bins=10_000)
    binned, binned_pr = found.ranking(found.codes, labels, scores, bins=128)
    assert np.nanmax(np.abs(exact - binned)) < 0.01
    assert abs(np.nanmean(exact_pr - binned_pr)) < 0.01


def test_clustered_intervals_are_wider_than_naive_ones():
    names, labels, scores = clustered()
    widths = []
    for groups in (list(names), [str(i) for i in range(len(names))]):
        found = Resampler(groups)
        roc, _ = found.ranking(found.codes, labels, scores)
        interval = found.estimate(auroc(labels, scores), roc)
        widths.append(interval.high - interval.low)
    assert widths[0] > 2.5 * widths[1]  # twelve copies of each: about the root of twelve


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 20))
def test_the_interval_holds_the_figure(seed, groups):
    names, labels, scores = clustered(groups, 3, seed)
    found = Resampler(list(names), resamples=50, seed=seed)
    roc, _ = found.ranking(found.codes, labels, scores)
    interval = found.estimate(auroc(labels, scores), roc)
    if interval.low is not None:
        assert interval.low <= interval.value <= interval.high


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    hits = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        labels = np.arange(80) % 2 == 0
        scores = rng.normal(size=80) + labels  # true AUROC: Phi(1 / sqrt 2)
        found = Resampler([str(i) for i in range(80)], resamples=200, seed=seed)
        interval = found.estimate(auroc(labels, scores), found.ranking(found.codes, labels, scores)[0])
        hits += interval.low <= 0.7602 <= interval.high
    assert hits >= 51  # 95 % of 60 is 57


def test_paired_differences():
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 3 == 0
    noise = rng.normal(size=120)
    good, same, bad = noise + 2 * labels, 3 * (noise + 2 * labels), noise
    found = Resampler([str(i // 2) for i in range(120)])
    draws = {name: found.ranking(found.codes, labels, s)[0] for name, s in (("g", good), ("s", same), ("b", bad))}
    clear = found.difference(auroc(labels, good), auroc(labels, bad), draws["g"], draws["b"])
    assert clear.estimate.low > 0 and clear.p < 0.01
    none = found.difference(auroc(labels, good), auroc(labels, same), draws["g"], draws["s"])
    assert none.estimate.value == none.estimate.low == none.estimate.high == 0
    assert none.p == 1
    mirrored = found.difference(auroc(labels, bad), auroc(labels, good), draws["b"], draws["g"])
    assert mirrored.estimate.high == -clear.estimate.low and mirrored.p == clear.p


def test_one_source_or_one_class_has_no_interval():
    alone = Resampler(["a"] * 4)
    labels, scores = np.array([1, 0, 1, 0], bool), np.arange(4.0)
    assert alone.estimate(0.5, alone.ranking(alone.codes, labels, scores)[0]).low is None
    several = Resampler(["a", "b", "c", "d"])
    roc, _ = several.ranking(several.codes, np.zeros(4, bool), scores)
    assert np.isnan(roc).all()
    assert several.estimate(float("nan"), roc).value is None


@pytest.mark.parametrize("arguments", [{"resamples": 0}, {"resamples": 2.5}, {"confidence": 0}, {"confidence": 1}])
def test_parameters_out_of_range(arguments):
    with pytest.raises(InputError):
        Resampler(["a", "b"], **arguments)


def test_six_hundred_answers_take_a_moment():
    rng = np.random.default_rng(0)
    found = Resampler([str(i) for i in range(600)])
    labels = rng.random(600) < 0.2
    start = time.process_time()
    for _ in range(15):
        found.ranking(found.codes, labels, rng.normal(size=600) + labels)
    assert time.process_time() - start < 30
