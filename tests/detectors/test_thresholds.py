"""Thresholds of untrained detectors: measured on faithful answers, kept in the cache, explained."""

from __future__ import annotations

import json
import logging
import os

import numpy as np
import pytest
import torch

import groundscope as gs
from groundscope.detectors import thresholds
from groundscope.detectors.judgement import Judgement, SentenceJudgement
from groundscope.detectors.registry import class_of, from_name, names
from groundscope.detectors.thresholds import (
    measure_threshold,
    read_sample,
    reference_sample,
    reference_threshold,
    threshold_key,
)
from groundscope.detectors.untrained.lumina import Lumina
from groundscope.errors import PrerequisiteError
from groundscope.lm.prompt.template import PromptTemplate
from groundscope.text.sentences import split_sentences
from groundscope.text.spans import smooth
from groundscope.verdict import Threshold

TEMPLATE = PromptTemplate()
SAMPLE = [
    gs.Example(f"What is {word}?", (f"{word} is a kind of {kind}, and people like it.",), f"{word} is {kind}.", id=word)
    for word, kind in (("tea", "drink"), ("rice", "grain"), ("iron", "metal"), ("oak", "tree"), ("flute", "instrument"))
]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GROUNDSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "thresholds"


@pytest.fixture
def reads(monkeypatch, tiny):
    """The number of passes that the tiny model makes."""
    count = []
    handle = tiny.anatomy.decoder.register_forward_pre_hook(lambda *_: count.append(1))
    yield count
    handle.remove()


@pytest.fixture
def short_sample(monkeypatch):
    """Five short faithful answers instead of the shipped ones, which take a tiny model long."""
    monkeypatch.setattr(thresholds, "reference_sample", lambda: tuple(SAMPLE))


def test_the_shipped_sample_is_faithful_and_credited():
    sample = reference_sample()
    assert len(sample) >= 30 and len({item.response for item in sample}) == len(sample)
    for item in sample:
        assert item.passages and item.response.strip() and not item.labels and not item.hallucinated
        assert item.license or item.dataset


def test_lines_are_drawn_above_nine_in_ten_of_the_scores(tiny):
    detector = from_name("perplexity")
    threshold = measure_threshold(tiny, detector, TEMPLATE, SAMPLE)
    renderer = tiny.renderer(TEMPLATE)
    traces = tiny.trace([renderer.layout(item) for item in SAMPLE], detector.signals)
    scores = [detector.token_scores(trace) for trace in traces]
    assert threshold.response == pytest.approx(np.quantile([s.mean() for s in scores], 0.9), rel=1e-4)
    stretches = np.concatenate([smooth(s, detector.window) for s in scores])
    assert threshold.span == pytest.approx(np.quantile(stretches, 0.95), rel=1e-4)
    assert threshold.source == (
        "5 faithful answers read by tiny: 10% of them would be flagged, 5% of their tokens marked"
    )
    assert sum(s.mean() >= threshold.response for s in scores) == 1


class Judging(type(from_name("perplexity"))):
    """Perplexity with a sentence model: each sentence scores its length."""

    def judge(self, trace):
        ranges = split_sentences(trace.layout.response)
        sentences = tuple(SentenceJudgement(start, end, float(end - start), 0.5) for start, end in ranges)
        return Judgement(sentences, -sentences[0].score, 0.5)


def test_a_sentence_model_has_lines_of_its_own(tiny, cache, short_sample):
    detector = Judging()
    threshold = reference_threshold(tiny, detector, TEMPLATE)
    lengths = [len(item.response) for item in SAMPLE]
    assert threshold.response == pytest.approx(np.quantile([-length for length in lengths], 0.9))
    assert threshold.sentence == pytest.approx(np.quantile(lengths, 0.95))
    assert threshold.source.endswith("5% of their tokens and sentences marked")
    assert threshold.span == measure_threshold(tiny, from_name("perplexity"), TEMPLATE, SAMPLE).span
    (file,) = cache.iterdir()
    assert json.loads(file.read_text())["sentence"] == threshold.sentence
    assert reference_threshold(tiny, detector, TEMPLATE) == threshold


UNTRAINED = [name for name in names() if not class_of(name).needs_training and name != "nli"]
SMALL = {name: {"samples": 2, "max_new_tokens": 3} for name in ("eigenscore", "selfcheck")}


@pytest.mark.parametrize("name", UNTRAINED)
def test_every_untrained_detector_has_finite_lines_and_the_same_twice(tiny, name):
    detector = from_name(name, **SMALL.get(name, {}))
    one, two = (measure_threshold(tiny, detector, TEMPLATE, SAMPLE) for _ in range(2))
    assert one == two and np.isfinite([one.response, one.span]).all()


def test_what_a_detector_gathers_with_must_be_there(tiny, tmp_path):
    with pytest.raises(PrerequisiteError, match=r"The classifier .* could not be loaded"):
        measure_threshold(tiny, from_name("nli", model=str(tmp_path)), TEMPLATE, SAMPLE)


def test_as_many_random_documents_are_drawn_as_the_detector_compares_with(tiny):
    (one,) = read_sample(tiny, [Lumina()], TEMPLATE, SAMPLE[:1])
    (three,) = read_sample(tiny, [Lumina(documents=3), from_name("novelty")], TEMPLATE, SAMPLE[:1])
    assert len(one.layout.contrast_prompt_ids) == 1 and len(three.layout.contrast_prompt_ids) == 3
    assert (three["mmd"] != one["mmd"]).any() and "word_novelty" in three


def test_what_was_learnt_is_in_the_key(tiny):
    traces = read_sample(tiny, [Lumina()], TEMPLATE, SAMPLE)
    keys = {
        threshold_key(tiny, detector, TEMPLATE)
        for detector in (
            Lumina(calibration="rank"),
            Lumina(calibration="rank").calibrate(traces),
            Lumina(calibration="rank").calibrate(traces[:2]),
        )
    }
    assert len(keys) == 3


def test_answers_that_the_model_cannot_read_are_left_out(make_tiny):
    lm = make_tiny(context=300)
    long = gs.Example("What?", ("word " * 400,), "Word.", id="long")
    measured = measure_threshold(lm, from_name("contrast"), TEMPLATE, [long, *SAMPLE])
    assert "5 faithful answers" in measured.source
    with pytest.raises(PrerequisiteError, match="could read none of the reference sample; give a threshold"):
        measure_threshold(lm, from_name("contrast"), TEMPLATE, [long])


def test_the_sample_is_read_once_and_kept(tiny, cache, reads, short_sample, caplog):
    detector = from_name("perplexity")
    with caplog.at_level(logging.WARNING):
        first = reference_threshold(tiny, detector, TEMPLATE)
    assert len(reads) > 0 and "reading a sample of faithful answers once" in caplog.text
    (file,) = cache.iterdir()
    assert file.name == f"{threshold_key(tiny, detector, TEMPLATE)}.json"
    del reads[:]
    caplog.clear()
    assert reference_threshold(tiny, detector, TEMPLATE) == first
    assert not reads and not caplog.text


def test_what_moves_the_scores_is_in_the_key(tiny, make_tiny):
    other_template = PromptTemplate(user="{passages}\n\n{question}")
    keys = {
        threshold_key(tiny, from_name("perplexity"), TEMPLATE),
        threshold_key(tiny, from_name("entropy"), TEMPLATE),
        threshold_key(tiny, Lumina(), TEMPLATE),
        threshold_key(tiny, Lumina(weight=0.25), TEMPLATE),
        threshold_key(tiny, from_name("perplexity"), other_template),
    }
    other = make_tiny()
    with torch.no_grad():
        next(other.model.parameters()).add_(1)
    keys.add(threshold_key(other, from_name("perplexity"), TEMPLATE))
    assert len(keys) == 6
    assert threshold_key(make_tiny(name="other"), from_name("entropy"), TEMPLATE) in keys
    assert threshold_key(make_tiny(), Lumina(), TEMPLATE) == threshold_key(tiny, Lumina(weight=0.5), TEMPLATE)


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        "null",
        '{"response": 1}',
        '{"response": "x", "span": 1, "source": ""}',
        '{"response": NaN, "span": 1, "source": ""}',
        '{"response": 1, "span": 1, "source": "", "sentence": "x"}',
    ],
)
def test_a_damaged_file_is_measured_again_and_replaced(tiny, cache, short_sample, damage):
    detector = from_name("perplexity")
    first = reference_threshold(tiny, detector, TEMPLATE)
    (file,) = cache.iterdir()
    file.write_text(damage)
    assert reference_threshold(tiny, detector, TEMPLATE) == first
    assert json.loads(file.read_text())["response"] == first.response
    assert list(cache.iterdir()) == [file]


def test_a_cache_that_cannot_be_written_costs_time_only(tiny, tmp_path, monkeypatch, reads, short_sample, caplog):
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    monkeypatch.setenv("GROUNDSCOPE_CACHE", str(blocker / "cache"))
    detector = from_name("perplexity")
    with caplog.at_level(logging.WARNING):
        first = reference_threshold(tiny, detector, TEMPLATE)
    assert "could not be kept in" in caplog.text and np.isfinite(first.response)
    del reads[:]
    assert reference_threshold(tiny, detector, TEMPLATE) == first and reads


def test_without_any_cache_folder_it_still_works(tiny, monkeypatch, short_sample):
    monkeypatch.delenv("GROUNDSCOPE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert np.isfinite(reference_threshold(tiny, from_name("perplexity"), TEMPLATE).response)


def test_a_scope_measures_only_when_no_threshold_is_given(tiny, cache, reads, short_sample):
    given = gs.Scope(tiny, "perplexity", threshold=2.5)
    assert given.threshold == gs.Scope(tiny, "perplexity", span_threshold=2.5).threshold
    assert (given.threshold.response, given.threshold.span, given.threshold.source) == (2.5, 2.5, "the caller")
    both = gs.Scope(tiny, "perplexity", threshold=2.5, span_threshold=3.5).threshold
    assert (both.response, both.span) == (2.5, 3.5)
    assert not reads and not cache.exists()
    verdict = gs.Scope(tiny, "perplexity").score("What is tea?", ["Tea is a drink."], "Tea is a drink.")
    assert "faithful answers read by tiny" in verdict.threshold.source


def test_the_callers_lines_leave_a_detectors_own_line_for_sentences(tiny):
    detector = from_name("perplexity")
    detector.threshold_ = Threshold(1.0, 2.0, "learnt", 0.5, 0.7, 0.6)
    assert gs.Scope(tiny, detector).threshold == detector.threshold_
    assert gs.Scope(tiny, detector, threshold=3.0).threshold == Threshold(3.0, 3.0, "the caller", 0.5, None, 0.6)


def test_the_embedded_model_needs_no_reading_for_built_in_detectors(embedded):
    path = thresholds.resources.files("groundscope.data").joinpath("thresholds.json")
    shipped = json.loads(path.read_text(encoding="utf-8"))
    if not shipped:
        pytest.skip("no thresholds are shipped yet: scripts/measure_thresholds.py writes them")
    for name in UNTRAINED:
        assert threshold_key(embedded, from_name(name), TEMPLATE) in shipped, name
