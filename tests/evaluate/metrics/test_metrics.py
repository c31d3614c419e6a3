"""Metrics against scikit-learn, by hand, and what must hold for all inputs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from groundscope.errors import InputError
from groundscope.evaluate.metrics.binary import Curve, always_positive_f1, auprc, auroc, calibration, count, pearson


@st.composite
def labelled(draw):
    size = draw(st.integers(2, 40))
    labels = draw(arrays(bool, size))
    labels[:2] = [True, False]
    # A coarse grid, so that ties are common.
    return labels, draw(arrays(np.int64, size, elements=st.integers(-4, 4))).astype(float)


@settings(deadline=None, max_examples=25)
@given(labelled())
def test_equal_to_scikit_learn(given_):
    labels, scores = given_
    assert auroc(labels, scores) == pytest.approx(roc_auc_score(labels, scores))
    assert auprc(labels, scores) == pytest.approx(average_precision_score(labels, scores))
    assert Curve.of(labels, scores).best_f1 == pytest.approx(
        max(count(labels, scores >= t).f1 for t in np.unique(scores))
    )
    if len(np.unique(scores)) > 1:
        assert pearson(labels, scores) == pytest.approx(np.corrcoef(labels, scores)[0, 1])


@settings(deadline=None, max_examples=25)
@given(labelled())
def test_ranking_sees_only_the_order(given_):
    labels, scores = given_
    for other in (3 * scores - 7, np.exp(scores), scores**3):
        assert auroc(labels, other) == pytest.approx(auroc(labels, scores))
        assert auprc(labels, other) == pytest.approx(auprc(labels, scores))
    assert auroc(labels, -scores) == pytest.approx(1 - auroc(labels, scores))
    assert auroc(~labels, scores) == pytest.approx(1 - auroc(labels, scores))


@settings(deadline=None, max_examples=25)
@given(labelled())
def test_a_weight_of_two_is_a_unit_twice(given_):
    labels, scores = given_
    weights = 1.0 + (np.arange(len(labels)) % 2)
    twice = np.repeat(np.arange(len(labels)), weights.astype(int))
    one, other = Curve.of(labels, scores, weights), Curve.of(labels[twice], scores[twice])
    assert one.auroc == pytest.approx(other.auroc)
    assert one.auprc == pytest.approx(other.auprc)


def test_counts_by_hand():
    found = count(np.array([1, 1, 1, 0, 0], bool), np.array([1, 1, 0, 1, 0], bool))
    assert (found.hit, found.false_alarm, found.missed) == (2, 1, 1)
    assert found.precision == found.recall == found.f1 == pytest.approx(2 / 3)
    assert found.iou == 0.5


def test_flagging_everything():
    labels = np.array([1, 0, 0, 0], bool)
    assert always_positive_f1(labels.mean()) == pytest.approx(f1_score(labels, np.ones(4)))


def test_one_class_has_no_figure():
    for labels in (np.ones(3, bool), np.zeros(3, bool)):
        assert np.isnan(auroc(labels, np.arange(3.0)))
        assert np.isnan(pearson(labels, np.arange(3.0)))
    assert np.isnan(auprc(np.zeros(3, bool), np.arange(3.0)))
    assert np.isnan(Curve.of(np.zeros(3, bool), np.arange(3.0)).best_f1)
    assert np.isnan(pearson(np.array([True, False]), np.ones(2)))


def test_calibration_by_hand():
    labels, scores = np.array([0, 1, 1, 1], bool), np.array([0.1, 0.1, 0.95, 1.0])
    assert calibration(labels, scores, bins=2) == [(0.1, 0.5, 2), (0.975, 1.0, 2)]
    with pytest.raises(InputError, match="needs probabilities"):
        calibration(labels, scores * 2)


@pytest.mark.parametrize("scores", [[0.0, np.nan], [np.inf, 0.0], [1.0], [[1.0, 2.0]]])
def test_what_cannot_be_compared_is_refused(scores):
    with pytest.raises(InputError):
        auroc(np.array([True, False]), np.array(scores))
