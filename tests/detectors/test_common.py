"""Every registered detector passes the common checks, and the checks catch detectors that do not."""

from __future__ import annotations

import numpy as np
import pytest
import tiny_classifier
from bench import Bench
from common_checks import CHECKS
from learned_checks import LEARNED_CHECKS

from groundscope.detectors.base import Detector
from groundscope.detectors.learnable import LearnedDetector
from groundscope.detectors.registry import class_of, from_name, names
from groundscope.detectors.untrained.lumina import Lumina


@pytest.fixture(scope="module")
def bench():
    return Bench.make()


# What suits a model of three layers, where the default does not.
SMALL = {
    "hidden-state": {"layer": 1},
    "saplma": {"layer": 1},
    "eigenscore": {"samples": 3, "max_new_tokens": 4},
    "selfcheck": {"samples": 3, "max_new_tokens": 4},
}
LEARNING = [name for name in names() if class_of(name).needs_training]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return str(tiny_classifier.save(tmp_path_factory.mktemp("classifier")))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", names())
def test_registered_detector(name, check, bench, request):
    options = {"model": request.getfixturevalue("classifier")} if name == "nli" else SMALL.get(name, {})
    detector = from_name(name, **options)
    assert detector.name == name
    check(detector, bench)


@pytest.mark.parametrize("check", LEARNED_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", LEARNING)
def test_registered_detector_that_learns(name, check, bench):
    assert issubclass(class_of(name), LearnedDetector)
    check(from_name(name, **SMALL.get(name, {})), bench)


@pytest.mark.parametrize(
    "options",
    [
        {"weight": 0.0, "top_k": 7},
        {"weight": 1, "documents": 2},
        {"weight": 0.25, "kernel": "rbf", "top_k": 7, "sigma": 0.5},
        {"calibration": "zscore"},
        {"calibration": "rank", "match_length": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_parameters_other_than_the_default(options, check, bench):
    check(Lumina(**options), bench)


class Broken(Detector):
    """Does nearly everything wrong."""

    name, summary, reference = "broken", "wrong", ""
    calls = 0

    def __init__(self, factor=2):
        self.factor = factor * 1.5
        self.cache = {}

    @property
    def signals(self):
        return ("token_logprob", "token_entropy")

    def token_scores(self, trace):
        Broken.calls += 1
        values = trace.signals.get("token_logprob", np.zeros(3))
        values += Broken.calls
        return values


def test_the_checks_catch_what_is_wrong(bench):
    caught = set()
    for check in CHECKS:
        try:
            check(Broken(), bench)
        except (AssertionError, pytest.fail.Exception, ValueError):
            caught.add(check.__name__)
    assert caught >= {
        "check_it_says_what_it_is",
        "check_the_constructor_only_stores_its_arguments",
        "check_scores_are_one_finite_number_per_token",
        "check_batch_equals_single",
        "check_it_is_deterministic",
        "check_a_missing_signal_is_named",
        "check_the_trace_is_left_as_it_was",
    }
