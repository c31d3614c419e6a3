"""The whole protocol on traces of a real tiny model: what is measured, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from towers import AnswerProbe, TokenProbe

from groundscope.detectors.base import Detector
from groundscope.detectors.registry import from_name
from groundscope.errors import InputError, UnknownNameError
from groundscope.evaluate.protocol.protocol import evaluate
from groundscope.evaluate.results.results import Evaluation
from groundscope.learn.labels import response_label
from groundscope.text.controls import word_novelty
from groundscope.trace.traced import TracedExample


class Raises(Detector):
    name, summary, reference = "raises", "raises", "a test"

    @property
    def signals(self):
        return ("token_logprob",)

    def token_scores(self, trace):
        raise ZeroDivisionError("out of luck")


class Picky(Raises):
    """Cannot score answers of an odd number of tokens."""

    name = "picky"

    def token_scores(self, trace):
        if trace.tokens % 2:
            raise ValueError("odd")
        return -trace["token_logprob"].astype(float)


class Inert(Raises):
    name = "inert"

    def token_scores(self, trace):
        return np.full(trace.tokens, np.nan)


@pytest.fixture(scope="module")
def found(traced):
    detectors = [from_name("perplexity"), from_name("lumina"), TokenProbe(), AnswerProbe(), Raises(), Inert()]
    return evaluate(traced, detectors, count=4, resamples=200)


def test_every_row_is_there_controls_beside(found):
    assert [row.name for row in found.rows] == [
        *("perplexity", "lumina", "token-probe", "answer-probe", "raises", "inert"),
        *("task only", "writer only", "response length", "word novelty"),
    ]
    assert found.row("perplexity").fitting == "untrained"
    assert found.row("token-probe").fitting == "cross-fitted"
    assert found.data["examples"] == 32 and found.data["sources"] == 16


def test_one_that_raises_does_not_stop_the_others(found):
    assert found.row("raises").failure == "ZeroDivisionError: out of luck"
    assert "finite numbers from token_scores" in found.row("inert").failure
    assert not found.row("raises").measured
    assert found.row("perplexity").at("response").auroc.value is not None
    assert any("raises has no figures" in item for item in found.findings)


def test_untrained_figures_are_those_of_the_plain_scores(found, traced):
    labels = [response_label(item.example) for item in traced]
    detector = from_name("perplexity")
    scores = [detector.response_score(detector.token_scores(item.trace)) for item in traced]
    assert found.row("perplexity").at("response").auroc.value == pytest.approx(roc_auc_score(labels, scores))
    novelty = [word_novelty(item.example) for item in traced]
    assert found.row("word novelty").at("response").auroc.value == pytest.approx(roc_auc_score(labels, novelty))


def test_slices_and_their_means(found):
    row = found.row("perplexity")
    for by, names in (("task", ("qa", "summarization")), ("generator", ("first", "second"))):
        items = [row.at("response", by, name) for name in names]
        assert sum(item.units for item in items) == 32
        macro = row.macro("response", by)
        assert macro.unweighted.value == pytest.approx(np.mean([item.auroc.value for item in items]))
        weighted = np.average([i.auroc.value for i in items], weights=[i.units for i in items])
        assert macro.weighted.value == pytest.approx(weighted)
    assert row.macro("response", "dataset") is None  # there is one only


def test_levels_count_their_own_units(found, traced):
    row = found.row("perplexity")
    assert row.at("token").units == sum(item.trace.tokens for item in traced)
    assert row.at("window").units == sum(item.trace.tokens - 7 for item in traced)
    assert row.at("span").units == sum(len(item.example.response) for item in traced)
    assert row.at("span").positives == 4 * sum(len(item.example.labels) for item in traced)
    assert row.at("span").auroc is None and row.at("response").iou is None
    assert len(row.lines) == 4


def test_a_control_that_beats_a_method_is_named(found):
    (line,) = [item for item in found.findings if item.startswith("response level: word novelty (AUROC 1.000)")]
    assert "perplexity (" in line.split("clearly beats")[1].split(", and")[0]


def test_comparisons_are_paired_and_mirror_the_figures(found):
    pair = next(
        item
        for item in found.comparisons
        if (item.level, item.first, item.second) == ("response", "perplexity", "word novelty")
    )
    assert pair.difference.value == pytest.approx(found.row("perplexity").at("response").auroc.value - 1)
    assert pair.difference.high < 0 and pair.p < 0.05


def test_the_record_survives_json(found):
    again = Evaluation.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False)))
    assert again == found
    record = found.to_dict()
    for wrong in ({}, {**record, "format": 99}, {**record, "rows": 3}, {**record, "more": 1}, [], {"format": 1}):
        with pytest.raises(InputError):
            Evaluation.from_dict(wrong)


def test_the_same_seed_gives_the_same_figures(found, traced):
    detectors = [from_name("perplexity"), TokenProbe()]
    again = evaluate(traced, detectors, count=4, resamples=200, cross=False)
    for name in ("perplexity", "token-probe"):
        assert again.row(name).measured == found.row(name).measured


def test_cross_task_table(found):
    table = next(item for item in found.cross if item.level == "response")
    assert table.parts == ("qa", "summarization") and table.examples == (16, 16)
    rows = {row.name: row for row in table.rows}
    for b, task in enumerate(table.parts):
        plain = found.row("perplexity").at("response", "task", task).auroc.value
        assert [rows["perplexity"].auroc[a][b] for a in (0, 1)] == pytest.approx([plain, plain])
    methods = [row for row in table.rows if row.kind == "method" and row.gap[0] is not None]
    best = max(row.auroc[0][1] for row in methods)
    for row in methods:
        assert row.gap[0] == pytest.approx((best - row.auroc[0][1]) / best * 100)
    assert rows["word novelty"].gap == (None, None) and rows["raises"].auroc[0][0] is None


def test_labels_of_answers_are_never_scored_as_spans(traced):
    whole = [TracedExample(replace(item.example, labels=None, label_kind="response"), item.trace) for item in traced]
    found = evaluate(whole, [from_name("perplexity"), TokenProbe(), AnswerProbe()], count=3, resamples=50, cross=False)
    assert {item.level for item in found.row("perplexity").measured} == {"response"}
    assert "learns from labels of the kind 'span' or 'sentence'" in found.row("token-probe").failure
    assert found.row("answer-probe").failure is None
    assert "no labels for the level token, window, span" in found.row("perplexity").notes


def test_a_detector_that_fails_on_some_examples_says_so(traced):
    odd = sum(item.trace.tokens % 2 for item in traced)
    assert 0 < odd < len(traced)
    found = evaluate(traced, [Picky()], count=3, resamples=50, cross=False, levels=["response"])
    assert found.row("picky").unscored == odd
    assert found.row("picky").at("response").units == len(traced) - odd
    assert not found.comparisons  # not on the same answers


def test_loaded_detectors_are_refused_on_what_they_learnt_from(traced):
    fitted = TokenProbe().fit(traced[:16])
    seen = evaluate(traced, [fitted], count=3, resamples=50, cross=False)
    assert "learnt from" in seen.row("token-probe").failure
    unseen = evaluate(traced[16:], [fitted], count=2, resamples=50, cross=False)
    assert unseen.row("token-probe").failure is None
    assert unseen.row("token-probe").fitting == "loaded"


def test_fitting_never_sees_what_is_measured(traced):
    fits = []

    class Spy(TokenProbe):
        name = "spy"

        def _fit(self, data, dev):
            super()._fit(data, dev)
            self.seen_ = {item.group for item in [*data, *dev]}
            fits.append(self.seen_)

        def token_scores(self, trace):
            by_trace = {id(item.trace): item.group for item in traced}
            scored.setdefault(id(self), set()).add(by_trace[id(trace)])
            return super().token_scores(trace)

    scored = {}
    evaluate(traced, [Spy()], count=4, resamples=20, cross=False)
    assert len(fits) == 4
    everything = {item.group for item in traced}
    # Of each fold model: what it scored beyond dev is exactly what it has not seen, and all is measured once.
    assert all(everything - seen for seen in fits)
    assert sum(len(everything - seen) for seen in fits) == len(everything)


def test_another_test_set(traced):
    found = evaluate(traced[:20], [from_name("perplexity"), TokenProbe()], test=traced[20:], resamples=50)
    assert found.data["examples"] == 12 and found.protocol["split"] == "test"
    assert not found.cross
    with pytest.raises(InputError, match="must not share a"):
        evaluate(traced[:21], [from_name("perplexity")], test=traced[20:])


def test_unlabelled_examples_are_counted_not_measured(traced):
    bare = TracedExample(replace(traced[0].example, labels=None, hallucinated=None, id="bare"), traced[0].trace)
    found = evaluate([*traced, bare], [from_name("perplexity")], count=3, resamples=20, cross=False)
    assert (found.data["examples"], found.data["unlabelled"]) == (32, 1)
    with pytest.raises(InputError, match="no labelled example"):
        evaluate([bare], [from_name("perplexity")])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"levels": ["word"]}, UnknownNameError),
        ({"levels": []}, InputError),
        ({"split": "random"}, InputError),
        ({"objective": "recall"}, InputError),
        ({"count": 1}, InputError),
        ({"resamples": 0}, InputError),
    ],
)
def test_wrong_parameters(traced, arguments, error):
    with pytest.raises(error):
        evaluate(traced, [from_name("perplexity")], **arguments)


def test_wrong_detectors(traced):
    for detectors in ([], ["perplexity"], {"word novelty": from_name("perplexity")}):
        with pytest.raises(InputError):
            evaluate(traced, detectors, count=3, resamples=20)


def test_rows_of_the_same_method_are_told_apart(traced):
    given = [
        from_name("lumina", weight=0.1),
        from_name("lumina", weight=0.9),
        from_name("perplexity"),
        from_name("perplexity"),
    ]
    found = evaluate(traced, given, count=3, resamples=20, cross=False, levels=["response"])
    names = [row.name for row in found.rows if row.kind == "method"]
    assert len(set(names)) == 4
    assert ("weight=0.1" in names[0] and names[2:] == ["perplexity() #1", "perplexity() #2"]) or names[3].endswith("#2")
