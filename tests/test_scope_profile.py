"""A scope judges by a profile, or by what its detector brings along, and says which."""

from __future__ import annotations

import numpy as np
import pytest

import groundscope as gs
from groundscope.detectors.registry import from_name
from groundscope.detectors.saved.profile import Profile, detector_sha256, save_profile
from groundscope.errors import InputError, MismatchError
from groundscope.learn.calibration_scores import CalibrationScores
from groundscope.learn.goal import Goal
from groundscope.mitigate.guarding.guard import guard
from groundscope.verdict import Threshold

QUESTION, PASSAGES, RESPONSE = "When was it completed?", ["It was completed in 1889."], "It was completed in 1887."
LINES = Threshold(123.0, 456.0, "the profile 'towers'")


@pytest.fixture
def profile(tiny):
    detector = from_name("perplexity")
    return Profile("towers", "perplexity", detector_sha256(detector), tiny.fingerprint(), LINES, Goal(0.05), 60)


def test_every_verdict_names_the_profile(tiny, profile, tmp_path):
    save_profile(profile, tmp_path / "p")
    for given in (profile, tmp_path / "p", str(tmp_path / "p")):
        scope = gs.Scope(tiny, "perplexity", profile=given)
        assert scope.profile == profile and scope.threshold == LINES
        verdict = scope.score(QUESTION, PASSAGES, RESPONSE)
        assert (verdict.profile, verdict.threshold, verdict.flagged) == ("towers", LINES, False)
        assert scope.score(QUESTION, PASSAGES, "").profile == "towers"
    answer = scope.generate(QUESTION, PASSAGES, max_new_tokens=3)
    assert answer.verdict.profile == "towers" and answer.verdict.threshold in (LINES, None)
    assert gs.Scope(tiny, "perplexity", threshold=1.0).score(QUESTION, PASSAGES, RESPONSE).profile == ""


def test_a_guard_judges_by_it(tiny, profile):
    scope = gs.Scope(tiny, "perplexity", profile=profile)
    verdicts = [event.verdict for event in guard([RESPONSE], scope, QUESTION, PASSAGES) if hasattr(event, "verdict")]
    assert verdicts and verdicts[-1].profile == "towers" and verdicts[-1].threshold == LINES


def test_the_detector_that_was_given_is_left_as_it_is(tiny, profile):
    detector = from_name("perplexity")
    assert gs.Scope(tiny, detector, profile=profile).detector is not detector
    assert detector.profile_ == "" and not hasattr(detector, "threshold_")


def test_scores_that_come_with_a_detector_keep_a_promise(tiny):
    detector = from_name("perplexity")
    detector.calibration_ = CalibrationScores(np.arange(100.0), np.arange(100.0), [], [])
    scope = gs.Scope(tiny, detector, max_false_alarm=0.1, confidence=0.95)
    assert "at most 10 % of faithful answers are flagged, with 95 % confidence" in scope.threshold.source
    assert (np.arange(100.0) >= scope.threshold.response).sum() == Goal(0.1, confidence=0.95).promise.allowed(100)


def test_what_does_not_belong_is_refused_before_a_model_is_loaded(tiny, make_tiny, profile):
    with pytest.raises(MismatchError, match="made for the detector"):
        gs.Scope.from_pretrained("./no-model", detector="contrast", profile=profile)
    with pytest.raises(InputError, match="keeps no promise"):
        gs.Scope.from_pretrained("./no-model", detector="perplexity", profile=profile, threshold=1.0)
    with pytest.raises(InputError, match="keeps no promise"):
        gs.Scope(tiny, "perplexity", max_false_alarm=0.1, span_threshold=1.0)
    with pytest.raises(MismatchError, match="weights"):
        gs.Scope(make_tiny(layers=2), "perplexity", profile=profile)
