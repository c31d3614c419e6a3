"""Foreign detectors that misbehave, texts that show nothing, arguments of the wrong type."""

from __future__ import annotations

import numpy as np
import pytest

import groundscope as gs
from groundscope.detectors.base import Detector
from groundscope.errors import InputError, PrerequisiteError, UnknownNameError

QUESTION, PASSAGES, RESPONSE = "When was it completed?", ["It was completed in 1889."], "It was completed in 1887."


class Foreign(Detector):
    """A detector from elsewhere whose answers are chosen by the test, for responses that say "bad"."""

    name, summary, reference = "foreign", "a plug-in", "none"

    def __init__(self, method="token_scores", answer=None, signals=("token_entropy",)):
        self.method, self.answer, self._signals = method, answer, signals

    @property
    def signals(self):
        if isinstance(self._signals, Exception):
            raise self._signals
        return self._signals

    def _answer(self, method, trace, good):
        if method != self.method or (trace is not None and "bad" not in trace.layout.response):
            return good
        return self.answer(good) if callable(self.answer) else self.answer

    def token_scores(self, trace):
        return self._answer("token_scores", trace, np.asarray(trace["token_entropy"], dtype=np.float64))

    def span_scores(self, trace):
        return self._answer("span_scores", trace, np.asarray(trace["token_entropy"], dtype=np.float64))

    def response_score(self, scores):
        return self._answer("response_score", None, float(scores.mean()))


def boom(_):
    raise KeyError("no such layer")


def with_one(value):
    return lambda good: np.where(np.arange(len(good)) == 1, value, good)


ARRAYS = [
    (with_one(np.nan), "finite scores from {}. Got nan for response token 1"),
    (with_one(np.inf), "finite scores from {}. Got inf"),
    (with_one(-np.inf), "finite scores from {}. Got -inf"),
    (with_one(1e305), "finite scores from {}"),
    (lambda good: good[:-1], "numbers from {}. Got shape"),
    (lambda good: good[:, None], "numbers from {}. Got shape"),
    (lambda good: float(good[0]), "numbers from {}. Got shape ()"),
    (lambda good: good.astype(str), "numbers from {}"),
    (lambda good: good + 1j, "numbers from {}"),
    (None, "numbers from {}. Got shape (), type object"),
    (boom, "failed in {}: KeyError: 'no such layer'"),
]


@pytest.mark.parametrize("method", ["token_scores", "span_scores"])
@pytest.mark.parametrize(("answer", "reason"), ARRAYS)
def test_a_detector_that_returns_garbage_fails_that_example_only(tiny, method, answer, reason):
    scope = gs.Scope(tiny, Foreign(method, answer), threshold=0.1)
    items = [{"response": text, "context": PASSAGES} for text in (RESPONSE, "This is a bad one.", RESPONSE)]
    verdicts = list(scope.score_many(items))
    assert [v.outcome for v in verdicts] == ["scored", "failed", "scored"]
    failed = verdicts[1]
    assert failed.score is None and failed.flagged is None and not failed.tokens
    assert "'foreign'" in failed.message and reason.format(method) in failed.message


@pytest.mark.parametrize("answer", [float("nan"), float("inf"), None, "1", np.zeros(2), True, boom])
def test_a_response_score_that_is_no_number_is_a_failure(tiny, answer):
    verdict = gs.Scope(tiny, Foreign("response_score", answer), threshold=0.1).score(QUESTION, PASSAGES, RESPONSE)
    assert (verdict.outcome, verdict.flagged) == ("failed", None)
    assert "'foreign'" in verdict.message and "response_score" in verdict.message


@pytest.mark.parametrize("kind", [np.float32, np.float64, int])
def test_scores_of_any_numeric_type_are_plain_numbers_in_the_verdict(tiny, kind):
    verdict = gs.Scope(tiny, Foreign("response_score", kind(2)), threshold=0.1).score(QUESTION, PASSAGES, RESPONSE)
    assert type(verdict.score) is float and verdict.score == 2 and verdict.flagged is True


@pytest.mark.parametrize(
    ("signals", "message"),
    [
        (("token_entropi",), "Did you mean 'token_entropy'"),
        ((None,), "Unknown signal None"),
        (None, "must be a list of names"),
        ("mmd", "must be a list of names"),
        (RuntimeError("not fitted"), "'foreign' cannot say which signals it reads: RuntimeError: not fitted"),
    ],
)
def test_signals_are_checked_when_the_scope_is_made(tiny, signals, message):
    with pytest.raises(InputError, match=message):
        gs.Scope(tiny, Foreign(signals=signals))


def test_an_unknown_signal_is_an_unknown_name(tiny):
    with pytest.raises(UnknownNameError, match="Unknown signal 'nope'"):
        gs.Scope(tiny, Foreign(signals=("token_entropy", "nope")))


def test_a_detector_that_breaks_on_the_reference_sample_says_so(tiny, monkeypatch):
    def broken(*_):
        raise ValueError("shapes differ")

    monkeypatch.setattr("groundscope.scope.reference_threshold", broken)
    with pytest.raises(PrerequisiteError, match="'foreign' failed on the reference sample: ValueError: shapes differ"):
        gs.Scope(tiny, Foreign()).score(QUESTION, PASSAGES, RESPONSE)


@pytest.mark.parametrize("response", ["\u200b", "\x00\x1b", "\ufe0f\u200d", "...", "?!", "\u200b -- "])
def test_a_response_that_says_nothing_is_no_answer(tiny, response):
    verdict = gs.Scope(tiny, threshold=0.1).score(QUESTION, PASSAGES, response)
    assert (verdict.outcome, verdict.score, verdict.flagged) == ("no_answer", None, None)
    assert ("claims nothing" in verdict.message) == any(char in "?.-" for char in response)


def test_passages_that_show_nothing_are_no_context(tiny):
    scope = gs.Scope(tiny, threshold=0.1)
    assert scope.score(QUESTION, ["\u200b", "\ufeff \x00"], RESPONSE).outcome == "no_context"
    assert scope.score(QUESTION, ["\u200b", "..."], RESPONSE).outcome == "scored"


WRONG = [
    {"threshold": "1"},
    {"threshold": True},
    {"span_threshold": [1]},
    {"batch_size": "8"},
    {"batch_size": None},
    {"batch_size": 1.5},
    {"batch_size": True},
    {"template": "x"},
    {"seed": "1"},
    {"evidence": "no"},
    {"long_context": None},
    {"contrast": ["pool"]},
    {"detector": None},
    {"detector": 5},
    {"detector": Foreign},
]


@pytest.mark.parametrize("options", WRONG, ids=repr)
def test_options_of_the_wrong_type_are_refused_with_and_without_a_model(tiny, monkeypatch, options):
    (name,) = options
    with pytest.raises(InputError, match=f"'{name}' parameter of Scope must be"):
        gs.Scope(tiny, **options)
    monkeypatch.setattr(gs.LanguageModel, "from_pretrained", lambda *_, **__: pytest.fail("the model was loaded"))
    with pytest.raises(InputError, match=f"'{name}' parameter of Scope must be"):
        gs.Scope.from_pretrained("smollm2-135m", **options)


def test_an_unknown_option_is_refused_before_the_model_is_loaded(monkeypatch):
    monkeypatch.setattr(gs.LanguageModel, "from_pretrained", lambda *_, **__: pytest.fail("the model was loaded"))
    with pytest.raises(UnknownNameError, match="Did you mean 'threshold'"):
        gs.Scope.from_pretrained("smollm2-135m", treshold=1.0)


@pytest.mark.parametrize("lm", ["smollm2-135m", None, 5])
def test_a_name_in_place_of_a_model_points_to_from_pretrained(lm):
    with pytest.raises(InputError, match=r"must be a LanguageModel.*Scope\.from_pretrained"):
        gs.Scope(lm)


def test_what_is_no_example_is_refused(tiny):
    scope = gs.Scope(tiny, threshold=0.1)
    for examples in (None, 5):
        with pytest.raises(InputError, match="'examples' parameter of score_many must be an iterable"):
            list(scope.score_many(examples))
    for others in ("abc", [{"response": "r"}], [None], 5):
        with pytest.raises(InputError, match="'others' parameter of score_many must be a list of Example"):
            list(scope.score_many([{"response": "r"}], others=others))
    with pytest.raises(InputError, match="'example' parameter of score must be an Example"):
        scope.score(example="x")


def test_an_identifier_that_is_not_unicode_fails_that_record_only(tiny):
    items = [{"id": "\ud800", "response": RESPONSE, "context": PASSAGES}, {"response": RESPONSE, "context": PASSAGES}]
    first, second = gs.Scope(tiny, threshold=0.1).score_many(items)
    assert first.outcome == "failed" and "valid Unicode" in first.message and second.outcome == "scored"
    listed, _ = gs.Scope(tiny, threshold=0.1).score_many([items[0] | {"id": [1]}, items[1]])
    assert listed.outcome == "failed" and listed.id is None and "Got [1] (list)" in listed.message
