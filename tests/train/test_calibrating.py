"""Answers of one's own, read from a file or a store, give lines that keep their promise on them."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from labelled import make_examples
from saved import fitted

import groundscope as gs
from groundscope.detectors.base import Detector
from groundscope.detectors.judgement import Judgement, SentenceJudgement
from groundscope.detectors.learnable import LearnedDetector
from groundscope.detectors.registry import from_name
from groundscope.detectors.saved.profile import Profile, detector_sha256
from groundscope.errors import InputError, MismatchError, PrerequisiteError
from groundscope.learn.calibration_scores import CalibrationScores
from groundscope.learn.goal import Goal
from groundscope.train.calibrating import ScoredAnswers, calibrate, prepare_answers, read_answers
from groundscope.train.data import ReadingOptions
from groundscope.train.extraction import Extraction
from groundscope.verdict import Threshold

PRESENT = Threshold(1.0, 1.0, "before", 1.0)


class Judging(Detector):
    """Judges sentences by the surprise of their tokens; its lines are the test's."""

    name, summary, reference = "judging", "sentences by surprise", "none"
    window = 4

    def __init__(self):
        self.threshold_ = Threshold(0.0, 0.0, "the test", 0.0)

    @property
    def signals(self):
        return ("token_logprob",)

    def token_scores(self, trace):
        return -np.asarray(trace["token_logprob"], dtype=np.float64)

    def judge(self, trace):
        scores, text = self.token_scores(trace), trace.layout.response
        cut = text.index(". ") + 1
        offsets = np.asarray(trace.layout.response_offsets)
        parts = []
        for start, end in ((0, cut), (cut + 1, len(text))):
            score = float(scores[(offsets[:, 0] >= start) & (offsets[:, 0] < end)].mean()) - 5
            parts.append(SentenceJudgement(start, end, score, 1 / (1 + math.exp(-score))))
        worst = max(parts, key=lambda item: item.score)
        return Judgement(tuple(parts), worst.score, worst.probability)


@pytest.fixture(scope="module")
def place(make_tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibrating")
    lm = make_tiny(name="a")
    lm.model.save_pretrained(folder / "a")
    lm.tokenizer.save_pretrained(folder / "a")
    bare = [replace(item, labels=None, hallucinated=None, label_kind=None) for item in make_examples(30)]
    write(folder / "bare.jsonl", bare)
    write(folder / "labelled.jsonl", make_examples(30))
    return folder


def write(path, examples):
    path.write_text("".join(json.dumps(item.to_dict()) + "\n" for item in examples), encoding="utf-8")


def read(place, name, detector, share=0.1, **options):
    reading = ReadingOptions(model=None if name == "store" else str(place / "a"), **options)
    return read_answers(prepare_answers(place / name, detector, reading, Goal(share)), detector)


@pytest.fixture(scope="module")
def judged(place):
    return read(place, "bare.jsonl", Judging())


@pytest.fixture(scope="module")
def lens(place):
    return fitted(gs.LanguageModel.from_pretrained(place / "a"))


def answers(scores, labels, present=PRESENT):
    scores = np.asarray(scores, dtype=np.float64)
    return ScoredAnswers(
        CalibrationScores(scores, scores, scores, np.arange(len(scores))),
        np.asarray(labels, dtype=np.float64),
        np.asarray(labels, dtype=np.float64),
        present,
        {"model": "tiny"},
        len(scores),
    )


def test_scores_are_what_verdicts_compare_with_the_lines(place, judged):
    found = calibrate(judged, Goal(0.1), assume_faithful=True)
    detector = Judging()
    threshold = judged.scores.threshold(found.lines, "a test")
    profile = Profile(
        "mine", "judging", detector_sha256(detector), judged.fingerprint, threshold, Goal(0.1), found.unlabelled
    )
    scope = gs.Scope(gs.LanguageModel.from_pretrained(place / "a"), detector, profile=profile, evidence=False)
    records = [json.loads(line) for line in (place / "bare.jsonl").read_text().splitlines()]
    verdicts = list(scope.score_many([gs.Example.from_dict(item) for item in records]))
    allowed = Goal(0.1).promise.allowed(30)
    assert allowed == 0 and found.unlabelled == 30 and str(found) == "30 answers without a label, taken as faithful"
    assert sum(verdict.flagged for verdict in verdicts) <= allowed
    assert sum(any(item.flagged for item in verdict.sentences) for verdict in verdicts) <= allowed
    assert sum(bool(verdict.spans) for verdict in verdicts) <= allowed
    assert {verdict.profile for verdict in verdicts} == {"mine"} and verdicts[0].threshold == threshold
    assert threshold.response_probability == pytest.approx(1 / (1 + math.exp(-threshold.response)), abs=0.02)
    assert found.before.response > 0 == found.after.response == found.after.sentence == found.after.span


def test_a_store_gives_the_lines_that_its_file_gives(place, judged):
    Extraction(place / "bare.jsonl", place / "store", [Judging()], options=ReadingOptions(str(place / "a"))).execute()
    stored = read(place, "store", Judging())
    np.testing.assert_allclose(stored.scores.response, judged.scores.response, rtol=1e-4)
    np.testing.assert_allclose(stored.scores.span, judged.scores.span, rtol=1e-4)
    assert {**stored.fingerprint, "model": ""} == {**judged.fingerprint, "model": ""}


def test_labels_are_kept_with_answers_and_sentences(place):
    detector = Judging()
    found = read(place, "labelled.jsonl", detector, 0.2)
    assert found.labels.tolist() == [0.0, 1.0] * 15
    assert found.sentence_labels.reshape(15, 4).tolist() == [[0.0, 0.0, 0.0, 1.0]] * 15


def test_a_detector_without_a_sentence_model_gets_no_line_for_sentences(place, lens):
    lens.threshold_ = Threshold(0.5, 0.5, "the test")
    found = read(place, "bare.jsonl", lens)
    assert not len(found.scores.sentence)
    assert calibrate(found, Goal(0.1), assume_faithful=True).lines.sentence is None
    with pytest.raises(InputError, match="judges sentences"):
        calibrate(found, Goal(0.1, unit="sentence"), assume_faithful=True)


def test_an_answer_counts_once(place, caplog):
    copies = [replace(item, id=f"{item.id}-{n}", hallucinated=False, labels=None, label_kind=None)
              for item in make_examples(10) for n in range(5)]  # fmt: skip
    write(place / "copies.jsonl", copies)
    with pytest.raises(InputError, match="Got 10"):
        prepare_answers(place / "copies.jsonl", Judging(), ReadingOptions("./no-model"), Goal(0.1))
    assert "40 answers stand there more than once" in caplog.text


def test_answers_that_a_detector_has_learnt_from_are_refused(place, lens):
    seen = gs.Example("When?", ("The tower number 1 was completed in 1889.",), "It was completed in 1889.", id="x")
    write(place / "seen.jsonl", [*make_examples(30), seen])
    with pytest.raises(InputError, match="learnt from the sources of 1 of these 31 answers, for instance 'x'"):
        prepare_answers(place / "seen.jsonl", lens, ReadingOptions("./no-model"), Goal(0.2))


def test_what_cannot_be_calibrated_is_refused_before_a_model_is_loaded(place):
    nowhere = ReadingOptions("./no-model")
    with pytest.raises(InputError, match=r"from 45 faithful answers on\. Got 30"):
        prepare_answers(place / "bare.jsonl", Judging(), nowhere, Goal(0.05))
    with pytest.raises(InputError, match=r"from 22 faithful answers on\. Got 15"):
        prepare_answers(place / "labelled.jsonl", Judging(), nowhere, Goal(0.1))
    with pytest.raises(InputError, match="Got 30 answers without"):
        prepare_answers(place / "bare.jsonl", Judging(), nowhere, Goal(precision=0.8))
    with pytest.raises(InputError, match="cannot be shown on these 30"):
        prepare_answers(place / "labelled.jsonl", Judging(), nowhere, Goal(precision=0.95))
    unfitted = from_name("lookback-lens")
    assert isinstance(unfitted, LearnedDetector)
    with pytest.raises(PrerequisiteError, match="must learn before"):
        prepare_answers(place / "bare.jsonl", unfitted, nowhere, Goal(0.1))


def test_a_store_of_another_model_is_refused(place, lens, tiny):
    wrong = fitted(tiny)
    wrong.fingerprint_ = {**wrong.fingerprint_, "weights": "other"}
    options = ReadingOptions(str(place / "a"))
    Extraction(place / "bare.jsonl", place / "lens-store", [wrong], options=options).execute()
    prepared = prepare_answers(place / "lens-store", wrong, ReadingOptions(), Goal(0.1))
    with pytest.raises(MismatchError, match="weights"):
        read_answers(prepared, wrong)


def test_labelled_hallucinated_answers_are_left_out():
    scores = np.concatenate([np.linspace(0, 0.9, 30), np.full(10, 5.0)])
    found = calibrate(answers(scores, [np.nan] * 20 + [0] * 10 + [1] * 10), Goal(0.1))
    assert (found.unlabelled, found.faithful, found.hallucinated, found.used) == (20, 10, 10, 30)
    assert 0.9 < found.lines.response < 0.95 and found.after.response == 0.0
    assert str(found) == "20 answers without a label, taken as faithful and 10 labelled as faithful"


def test_a_precision_uses_labelled_answers_alone():
    rng = np.random.default_rng(0)
    wrong = np.arange(100) < 50
    scores = np.concatenate([wrong * 3 + rng.normal(size=100), np.full(40, 100.0)])
    labels = np.concatenate([wrong, np.full(40, np.nan)])
    found = calibrate(answers(scores, labels), Goal(precision=0.8))
    assert (found.unlabelled, found.used) == (0, 100) and found.lines.response < 5
    assert wrong[scores[:100] >= found.lines.response].mean() >= 0.8


def test_nearly_all_flagged_is_refused_with_the_cure():
    scores = np.linspace(2, 3, 50)
    with pytest.raises(InputError, match=r"50 of 50 answers.*--assume-faithful"):
        calibrate(answers(scores, [np.nan] * 50), Goal(0.1))
    assert calibrate(answers(scores, [np.nan] * 50), Goal(0.1), assume_faithful=True).after.response == 0.02
    # Labels that show the same of faithful answers say that it is the line that is off.
    assert calibrate(answers(scores, [0] * 10 + [np.nan] * 40), Goal(0.1)).lines.response > 2.9
    with pytest.raises(InputError, match="40 of 40"):
        calibrate(answers([0.0] * 10 + [2.0] * 40, [0] * 10 + [np.nan] * 40), Goal(0.1))
    assert calibrate(answers(scores, [0] * 50), Goal(0.1)).before.response == 1.0
