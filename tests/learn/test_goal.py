"""Either a share of false alarms or a precision, in words that a verdict can carry."""

from __future__ import annotations

import pytest

from groundscope.errors import InputError
from groundscope.learn.goal import Goal


def test_a_goal_says_what_it_promises():
    assert str(Goal(0.05)) == "at most 5 % of faithful answers are flagged, with 90 % confidence"
    assert str(Goal(0.1, unit="sentence")).startswith("at most 10 % of faithful answers, and of their sentences, are")
    assert str(Goal(precision=0.8, confidence=0.95)) == (
        "at least 80 % of flagged answers are unsupported, with 95 % confidence"
    )
    assert Goal(0.05).promise.needed == 45


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "either a share"),
        ({"max_false_alarm": 0.1, "precision": 0.8}, "either a share"),
        ({"max_false_alarm": 0.0}, "'max_false_alarm'"),
        ({"max_false_alarm": 1}, "'max_false_alarm'"),
        ({"max_false_alarm": float("nan")}, "'max_false_alarm'"),
        ({"max_false_alarm": "0.1"}, "'max_false_alarm'"),
        ({"max_false_alarm": 0.1, "confidence": 1.0}, "'confidence'"),
        ({"precision": 1.0}, "'precision'"),
        ({"precision": 0.8, "confidence": 0.0}, "'confidence'"),
        ({"max_false_alarm": 0.1, "unit": "word"}, "'unit'"),
    ],
)
def test_what_is_no_goal_is_refused(fields, message):
    with pytest.raises(InputError, match=message):
        Goal(**fields)


def test_a_precision_is_no_promise_about_false_alarms():
    with pytest.raises(InputError, match="promises a precision"):
        _ = Goal(precision=0.8).promise
