"""Verdicts of a detector with a sentence model; its judgements are chosen by the test."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import groundscope as gs
from groundscope.assembly import Assembler
from groundscope.detectors.base import Detector
from groundscope.detectors.judgement import Judgement, Nearest, Reason, SentenceJudgement
from groundscope.text.sentences import split_sentences
from groundscope.text.words import word_spans
from groundscope.verdict import Threshold

RESPONSE = "It was completed in 1887. It stands in Rome. It is tall."
PASSAGES = ("It was completed in 1889. It stands in Paris.", "It is 330 metres tall.")
RANGES = split_sentences(RESPONSE)
WORDS = word_spans(RESPONSE)
WHY = Reason("text", 1.5, "'1887' stands in no passage")
LINES = Threshold(0.5, 1.0, "a profile", 0.25, 0.61, 0.4)


def judgement_of(scores=(2.0, -1.0, -2.0), score=1.5, probability=0.83, **changes):
    sentences = tuple(
        replace(SentenceJudgement(start, end, value, 1 / (1 + math.exp(-value)), (WHY,)), **changes)
        for (start, end), value in zip(RANGES, scores, strict=True)
    )
    return Judgement(sentences, score, probability)


class Judging(Detector):
    """Says of every trace what it was made with."""

    name, summary, reference = "judging", "given judgements", "none"
    window = 1

    def __init__(self, *judgements):
        self.judgements = list(judgements)

    @property
    def signals(self):
        return ("token_entropy",)

    def token_scores(self, trace):
        return trace["token_entropy"].astype(np.float64)

    def judge(self, trace):
        judgement = self.judgements[trace.blind_layers]  # used to number the prompts
        if isinstance(judgement, Exception):
            raise judgement
        return judgement


def trace_of(scores=None, number=0, passages=PASSAGES, numbers=(0, 1)):
    layout = gs.Layout(
        prompt_ids=np.arange(1, 8),
        response_ids=np.arange(len(WORDS)) + 3,
        passages=tuple((i, i + 1) for i in range(len(passages))),
        header=(6, 7),
        response=RESPONSE,
        response_offsets=np.asarray(WORDS, dtype=np.int64),
        passage_numbers=tuple(numbers),
        passage_texts=tuple(passages),
    )
    values = np.zeros(len(WORDS)) if scores is None else scores
    signals = {"token_entropy": np.asarray(values, dtype=np.float32)}
    return gs.Trace(layout, signals, attention_layers=(0, 1, 2, 3), blind_layers=number)


def verdict_of(*judgements, traces=None, lines=LINES, detector=None):
    example = gs.Example("When?", PASSAGES, RESPONSE, id="e")
    detector = detector or Judging(*judgements)
    return Assembler(detector, "tiny").verdict(example, traces or [trace_of()], lines)


def test_sentences_and_the_whole_come_from_the_judgement():
    verdict = verdict_of(judgement_of())
    assert (verdict.score, verdict.probability, verdict.flagged) == (1.5, 0.83, True)
    assert [item.score for item in verdict.sentences] == [2.0, -1.0, -2.0]
    assert [item.flagged for item in verdict.sentences] == [True, False, False]
    assert [item.probability for item in verdict.sentences] == pytest.approx([0.881, 0.269, 0.119], abs=1e-3)
    assert all(item.reasons == (WHY,) for item in verdict.sentences)
    assert gs.Verdict.from_dict(verdict.to_dict()) == verdict


def test_the_line_itself_flags():
    assert verdict_of(judgement_of((0.25, 0.2499, 0.0), score=0.5)).flagged
    verdict = verdict_of(judgement_of((0.25, 0.2499, 0.0), score=0.4999))
    assert verdict.flagged is False and [item.flagged for item in verdict.sentences] == [True, False, False]


def test_a_span_is_explained_by_the_sentences_it_lies_in():
    scores = np.zeros(len(WORDS))
    year = [RESPONSE[start:end] for start, end in WORDS].index("1887")
    scores[year] = 4.0
    near = Nearest(0, 0, 25, 0.75)
    verdict = verdict_of(judgement_of(nearest=near), traces=[trace_of(scores)])
    (span,) = verdict.spans
    assert (span.text, span.score, span.reasons, span.nearest) == ("1887", 4.0, (WHY,), near)
    assert span.probability == verdict.sentences[0].probability
    scores[year : year + 3] = 4.0  # over the full stop, into the next sentence
    other = Reason("attention", -3.0, "attention on the passages")
    judgement = judgement_of()
    second = replace(judgement.sentences[1], reasons=(other, WHY), nearest=near)
    judgement = replace(judgement, sentences=(judgement.sentences[0], second, judgement.sentences[2]))
    (span,) = verdict_of(judgement, traces=[trace_of(scores)]).spans
    assert span.text == "1887. It" and span.reasons == (other, WHY)
    assert span.nearest is None and span.probability == judgement.sentences[0].probability


def test_a_flagged_sentence_without_a_standing_out_stretch_is_marked_whole():
    verdict = verdict_of(judgement_of((2.0, -1.0, 1.0)))
    assert [span.text for span in verdict.spans] == ["It was completed in 1887.", "It is tall."]
    assert [span.reasons for span in verdict.spans] == [(WHY,), (WHY,)]
    scores = np.zeros(len(WORDS))
    scores[-2] = 4.0
    verdict = verdict_of(judgement_of((2.0, -1.0, 1.0)), traces=[trace_of(scores)])
    assert [span.text for span in verdict.spans] == ["It was completed in 1887.", "tall"]


def test_a_flagged_answer_of_unflagged_sentences_points_at_its_highest():
    verdict = verdict_of(judgement_of((-1.0, 0.0, -2.0)))
    assert verdict.flagged and not any(item.flagged for item in verdict.sentences)
    assert [span.text for span in verdict.spans] == ["It stands in Rome."]
    assert verdict_of(judgement_of((-1.0, 0.0, -2.0), score=0.0)).spans == ()


def test_without_a_line_for_sentences_a_span_flags_them():
    verdict = verdict_of(judgement_of(), lines=Threshold(0.5, 1.0, "the caller"))
    assert [item.flagged for item in verdict.sentences] == [True, False, False]
    assert [span.text for span in verdict.spans] == ["It was completed in 1887."]


def test_several_prompts_count_a_sentence_as_supported_if_one_supports_it():
    one, two = judgement_of((2.0, -3.0, 1.0)), judgement_of((-2.0, 3.0, 1.5))
    traces = [trace_of(number=0), trace_of(number=1)]
    verdict = verdict_of(one, two, traces=traces)
    assert [item.score for item in verdict.sentences] == [-2.0, -3.0, 1.0]
    assert verdict.score == 1.0 and verdict.probability == verdict.sentences[2].probability

    class Mean(Judging):
        def response_from_sentences(self, sentences):
            return float(np.mean([item.score for item in sentences])), 0.125

    verdict = verdict_of(traces=traces, detector=Mean(one, two))
    assert verdict.score == pytest.approx(-4 / 3) and verdict.probability == 0.125


def test_nearest_sentences_are_counted_in_the_examples_own_passages():
    piece = "It stands in Paris."
    start = PASSAGES[0].index(piece)
    judgement = judgement_of(nearest=Nearest(1, 3, 9, 0.5))
    trace = trace_of(passages=(PASSAGES[1], piece), numbers=(1, 0))
    verdict = verdict_of(judgement, traces=[trace])
    nearest = verdict.sentences[0].nearest
    assert nearest == Nearest(0, start + 3, start + 9, 0.5)
    assert PASSAGES[0][nearest.start : nearest.end] == piece[3:9]
    changed = trace_of(passages=(PASSAGES[1], "not verbatim"), numbers=(1, 0))
    assert verdict_of(judgement, traces=[changed]).sentences[0].nearest is None
    bare = replace(trace.layout, passage_texts=())
    assert verdict_of(judgement, traces=[replace(trace, layout=bare)]).sentences[0].nearest == Nearest(0, 3, 9, 0.5)


@pytest.mark.parametrize(
    "wrong",
    [
        RuntimeError("no weights"),
        0.5,
        judgement_of(score=math.nan),
        judgement_of(probability=2.0),
        judgement_of(nearest=Nearest(0, 0, 999, 0.5)),
        Judgement((), 0.0, 0.5),
    ],
    ids=repr,
)
def test_a_detector_is_not_trusted(wrong):
    verdict = verdict_of(wrong)
    assert (verdict.outcome, verdict.score, verdict.probability) == ("failed", None, None)
    assert "'judging'" in verdict.message and "judge" in verdict.message
    if isinstance(wrong, Exception):
        assert "RuntimeError: no weights" in verdict.message


def test_a_judgement_under_one_prompt_only_is_refused():
    verdict = verdict_of(judgement_of(), None, traces=[trace_of(number=0), trace_of(number=1)])
    assert verdict.outcome == "failed" and "got None" in verdict.message


@pytest.mark.parametrize("whole", [None, 0.5, (math.nan, 0.5)])
def test_what_joins_prompts_is_not_trusted_either(whole):
    class Broken(Judging):
        def response_from_sentences(self, sentences):
            return whole

    detector = Broken(judgement_of(), judgement_of())
    verdict = verdict_of(traces=[trace_of(number=0), trace_of(number=1)], detector=detector)
    assert verdict.outcome == "failed" and "'judging'" in verdict.message


def test_the_profile_is_named_in_every_verdict():
    detector = Judging(judgement_of())
    assert verdict_of(detector=detector).profile == ""
    detector.profile_ = "support tickets, 5 % false alarms"
    assert verdict_of(detector=detector).profile == detector.profile_
    example = gs.Example("When?", PASSAGES, "", id="e")
    assert Assembler(detector, "tiny").unscored(example, "no_answer", "empty").profile == detector.profile_


@settings(max_examples=60)
@given(st.data())
def test_whatever_the_judgement_a_verdict_is_consistent(data):
    number = st.floats(-9, 9)
    judgement = judgement_of([data.draw(number) for _ in RANGES], data.draw(number), data.draw(st.floats(0, 1)))
    scores = data.draw(st.lists(st.floats(-9, 9, width=32), min_size=len(WORDS), max_size=len(WORDS)))
    lines = Threshold(data.draw(number), data.draw(number), "drawn", data.draw(number))
    verdict = verdict_of(judgement, traces=[trace_of(scores)], lines=lines)
    assert verdict.flagged == (judgement.score >= lines.response)
    assert [item.flagged for item in verdict.sentences] == [
        item.score >= lines.sentence for item in judgement.sentences
    ]
    assert all(a.end <= b.start for a, b in zip(verdict.spans, verdict.spans[1:], strict=False))
    for item in verdict.sentences:
        assert not item.flagged or any(span.start < item.end and item.start < span.end for span in verdict.spans)
    assert verdict.spans or not verdict.flagged
    assert gs.Verdict.from_dict(verdict.to_dict()) == verdict
