"""Lines from scores: the promise is kept, also where unlabelled answers are not all faithful."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from groundscope.errors import InputError
from groundscope.learn.calibration_scores import CalibrationScores, promised
from groundscope.learn.goal import Goal


def made(response, sentences=None, **more):
    """Scores of answers; ``sentences`` holds one list an answer."""
    values = [] if sentences is None else [score for row in sentences for score in row]
    answers = [] if sentences is None else [i for i, row in enumerate(sentences) for _ in row]
    return CalibrationScores(np.array(response), np.array(response) + 1.0, np.array(values), np.array(answers), **more)


def drawn(rng, count, unsupported=0.0, ties=False):
    """Answers of one to five sentences; unsupported ones score higher; the truth beside them."""
    wrong = rng.random(count) < unsupported
    sentences = [rng.normal(size=rng.integers(1, 6)) + 2.0 * bad for bad in wrong]
    if ties:
        sentences = [np.round(row * 2) / 2 for row in sentences]
    return made([row.mean() for row in sentences], sentences), wrong


POPULATION = drawn(np.random.default_rng(99), 60_000)[0]
TIED = drawn(np.random.default_rng(98), 60_000, ties=True)[0]


def rates(lines, people, unit):
    """What the lines flag of faithful answers: responses, sentences (or answers with one), spans."""
    if unit == "sentence":  # a sentence of a random answer
        counts = np.bincount(people.answer, minlength=len(people))
        flagged = np.bincount(people.answer, weights=people.sentence >= lines.sentence, minlength=len(people))
        sentence = float((flagged / counts).mean())
    else:
        sentence = float((people.highest_sentences >= lines.sentence).mean())
    return float((people.response >= lines.response).mean()), sentence, float((people.span >= lines.span).mean())


@pytest.mark.parametrize(
    ("unsupported", "ties", "unit"),
    [(0.0, False, "response"), (0.1, False, "response"), (0.1, True, "response"), (0.1, False, "sentence")],
)
def test_a_thousand_draws_keep_the_promise_with_unsupported_answers_among_them(unsupported, ties, unit):
    rng = np.random.default_rng(0)
    people = TIED if ties else POPULATION
    goal = Goal(0.1, unit=unit)
    broken = np.zeros(3)
    for _ in range(1000):
        scores, _ = drawn(rng, 60, unsupported, ties)
        broken += np.array(rates(scores.lines(goal), people, unit)) > 0.1 + 0.003
    # What a thousand draws at exactly the stated risk exceed once in ten thousand times.
    assert (broken <= binom.ppf(0.9999, 1000, 0.1)).all(), broken


def test_unsupported_answers_that_score_lower_would_break_it():
    """Which is why the docstring says so: the promise needs them to score higher."""
    rng = np.random.default_rng(1)
    broken = 0
    for _ in range(300):
        low = rng.normal(size=60) - 5.0 * (rng.random(60) < 0.4)
        line = made(low).lines(Goal(0.1)).response
        broken += (line <= POPULATION_NORMAL).mean() > 0.1
    assert broken > 100


POPULATION_NORMAL = np.random.default_rng(97).normal(size=60_000)


@given(st.lists(st.integers(-3, 3), min_size=22, max_size=150), st.floats(0.1, 0.5), st.data())
def test_lines_from_n_answers_flag_at_most_k_of_them(values, share, data):
    goal = Goal(share)
    sentences = [[value] * data.draw(st.integers(1, 3)) for value in values]
    scores = made(np.array(values, dtype=float), sentences)
    allowed = goal.promise.allowed(len(values))
    lines = scores.lines(goal)
    assert (scores.response >= lines.response).sum() <= allowed
    assert (scores.span >= lines.span).sum() <= allowed
    assert (scores.highest_sentences >= lines.sentence).sum() <= allowed


def test_precision_per_answer_and_per_sentence():
    rng = np.random.default_rng(2)
    scores, wrong = drawn(rng, 400, 0.4)
    marks = np.repeat(np.nan, len(scores.sentence))
    marks[:] = wrong[scores.answer]
    lines = scores.precise_lines(wrong, Goal(precision=0.7))
    assert lines.unmet == ()
    for values, line in ((scores.response, lines.response), (scores.highest_sentences, lines.sentence)):
        assert wrong[values >= line].mean() >= 0.7
    each = scores.precise_lines(wrong, Goal(precision=0.7, unit="sentence"), marks)
    assert wrong[scores.answer][scores.sentence >= each.sentence].mean() >= 0.65
    unknown = scores.precise_lines(wrong, Goal(precision=0.7, unit="sentence"), np.full(len(marks), np.nan))
    assert unknown.unmet == ("sentence",) and unknown.sentence > scores.sentence.max()


def test_a_sentence_line_that_cannot_be_shown_lies_above_all_that_was_seen():
    rng = np.random.default_rng(3)
    wrong = np.arange(200) < 80
    scores = CalibrationScores(wrong + rng.normal(size=200) * 0.1, rng.normal(size=200), [], [])
    lines = scores.precise_lines(wrong, Goal(precision=0.9))
    assert lines.unmet == ("span",) and lines.sentence is None
    assert not (scores.span >= lines.span).any() and (scores.response >= lines.response).any()


def test_probabilities_at_the_lines_are_those_of_the_scores_around_them():
    values = np.linspace(-3, 3, 60)
    chance = 1 / (1 + np.exp(-values))
    scores = made(values, [[value] for value in values], response_probability=chance, sentence_probability=chance)
    threshold = scores.threshold(scores.lines(Goal(0.1)), "a test")
    assert threshold.response_probability == pytest.approx(1 / (1 + np.exp(-threshold.response)), abs=0.01)
    assert threshold.sentence_probability == pytest.approx(1 / (1 + np.exp(-threshold.sentence)), abs=0.01)
    bare = made(values)
    threshold = bare.threshold(bare.lines(Goal(0.1)), "a test")
    assert (threshold.sentence, threshold.response_probability, threshold.sentence_probability) == (None, None, None)


@pytest.mark.parametrize("probabilities", [False, True])
def test_it_survives_being_written_down(probabilities, tmp_path):
    more = {"response_probability": np.full(3, 0.5), "sentence_probability": np.full(4, 0.25)} if probabilities else {}
    scores = made([1.0, 2.0, 3.0], [[1.0, 0.5], [2.0], [3.0]], **more)
    np.savez(tmp_path / "scores.npz", **scores.state())
    got = CalibrationScores.from_state(dict(np.load(tmp_path / "scores.npz")))
    assert got.state().keys() == scores.state().keys()
    for name, array in scores.state().items():
        np.testing.assert_array_equal(got.state()[name], array)


def test_some_answers_keep_their_own_sentences():
    scores = made([1.0, 2.0, 3.0], [[1.0, 0.5], [2.0], [3.0, 2.5]])
    part = scores.chosen(np.array([True, False, True]))
    assert part.response.tolist() == [1.0, 3.0] and part.answer.tolist() == [0, 0, 1, 1]
    assert part.sentence.tolist() == [1.0, 0.5, 3.0, 2.5] and part.highest_sentences.tolist() == [1.0, 3.0]


def test_one_sentence_is_drawn_from_each_answer_and_the_seed_decides():
    scores = made(np.zeros(50), [[1.0, 2.0, 3.0]] * 50)
    one = scores.drawn_sentences(0)
    assert (scores.answer[one] == np.arange(50)).all() and (one == scores.drawn_sentences(0)).all()
    assert (one != scores.drawn_sentences(1)).any() and len(set(scores.sentence[one])) == 3


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (([1.0, np.nan], [1.0, 1.0], [], []), "finite"),
        (([1.0, 2.0], [1.0], [], []), "one span score per"),
        (([[1.0]], [1.0], [], []), "one span score per"),
        (([1.0], [1.0], [1.0, 2.0], [0]), "one answer per sentence"),
        (([1.0, 2.0], [1.0, 2.0], [1.0], [0]), "Every answer must have a sentence"),
        (([1.0], [1.0], [1.0], [3]), "of no answer"),
        ((["a"], [1.0], [], []), "arrays of numbers"),
        (([1.0], [1.0], [], [], [1.5]), "probabilities"),
        (([1.0], [1.0], [], [], [0.5, 0.5]), "one span score per"),
    ],
)
def test_what_are_no_such_scores_is_refused(arrays, message):
    with pytest.raises(InputError, match=message):
        CalibrationScores(*arrays)


def test_missing_arrays_too_few_answers_and_missing_sentences_are_refused():
    with pytest.raises(InputError, match="'span' is missing"):
        CalibrationScores.from_state({"response": np.zeros(3)})
    with pytest.raises(InputError, match=r"from 45 faithful answers on\. Got 44"):
        made(np.arange(44.0)).lines(Goal(0.05))
    with pytest.raises(InputError, match="judges sentences"):
        made(np.arange(50.0)).lines(Goal(0.05, unit="sentence"))


def test_a_promise_by_what_a_detector_brings_along_says_so():
    threshold = promised(made(np.arange(100.0)), Goal(0.05), "fusion")
    assert threshold.source.startswith("100 faithful answers that fusion was not fitted on: at most 5 % of faithful")
    assert 90 < threshold.response < 99
