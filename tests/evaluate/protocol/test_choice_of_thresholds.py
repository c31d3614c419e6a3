from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groundscope.errors import InputError
from groundscope.evaluate.metrics.binary import count
from groundscope.evaluate.protocol.thresholds import Objective, choose_threshold

LABELS = np.array([0, 0, 1, 0, 1, 1], bool)
SCORES = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])


@pytest.mark.parametrize(
    ("objective", "threshold"),
    [("f1", 1.5), ("precision:0.9", 3.5), ("precision:0.7", 1.5), ("fpr:0.05", 3.5), ("fpr:0.34", 1.5)],
)
def test_by_hand(objective, threshold):
    choice = choose_threshold(LABELS, SCORES, Objective.parse(objective))
    assert (choice.threshold, choice.met) == (threshold, True)


def test_no_threshold_is_precise_enough():
    choice = choose_threshold(~LABELS, SCORES, Objective.parse("precision:0.9"))
    assert not choice.met
    assert choice.threshold > SCORES.max()


def test_weights_move_the_line():
    weights = np.array([1, 1, 1, 9, 1, 1.0])
    assert choose_threshold(LABELS, SCORES, Objective(), weights).threshold == 3.5


@pytest.mark.parametrize("text", ["", "f2", "precision", "precision:2", "fpr:-1", "fpr:x", "fpr:nan", "f1:0.5"])
def test_objectives_that_are_none(text):
    with pytest.raises(InputError, match="An objective must be"):
        Objective.parse(text)


@pytest.mark.parametrize("text", ["f1", "precision:0.9", "fpr:0.05"])
def test_objectives_in_words_and_back(text):
    assert str(Objective.parse(text)) == text


def test_one_class_is_refused():
    with pytest.raises(InputError, match="both classes"):
        choose_threshold(np.ones(3, bool), np.arange(3.0), Objective())


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), min_size=1, max_size=30), st.floats(0, 1))
def test_bounds_hold_where_they_are_said_to(pairs, level):
    labels = np.array([True, False, *(label for label, _ in pairs)])
    scores = np.array([0, 0, *(score for _, score in pairs)], dtype=float)
    for kind in ("precision", "fpr"):
        choice = choose_threshold(labels, scores, Objective(kind, level))
        found = count(labels, scores >= choice.threshold)
        if not choice.met:
            assert found.hit == found.false_alarm == 0
        elif kind == "precision":
            assert found.precision >= level
        else:
            assert found.false_alarm / (~labels).sum() <= level
    best = choose_threshold(labels, scores, Objective())
    assert count(labels, scores >= best.threshold).f1 == pytest.approx(
        max(count(labels, scores >= t).f1 for t in np.unique(scores))
    )
