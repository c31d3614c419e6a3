"""From token scores to verdicts, with scores chosen by the test."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import groundscope as gs
from groundscope.assembly import Assembler
from groundscope.detectors.base import Detector
from groundscope.text.words import word_spans
from groundscope.verdict import OUTCOMES, Threshold

RESPONSE = "The tower was completed in 1887. It stands in Rome, Italy."
PASSAGES = ("first", "second", "third")


class Given(Detector):
    """Scores that a trace was made with."""

    name, summary, reference = "given", "given scores", "none"
    window = 1

    @property
    def signals(self):
        return ("token_entropy",)

    def token_scores(self, trace):
        return trace["token_entropy"].astype(np.float64)


def trace_of(scores, attention=None, response=RESPONSE, offsets=None, blind=0, numbers=(0, 1, 2)):
    """A trace with one token per word, the given scores, and attention (token, passage)."""
    offsets = word_spans(response) if offsets is None else offsets
    layout = gs.Layout(
        prompt_ids=np.arange(1, 8),
        response_ids=np.arange(len(offsets)) + 3,
        passages=tuple((i, i + 1) for i in range(len(numbers))),
        header=(6, 7),
        response=response,
        response_offsets=np.asarray(offsets, dtype=np.int64).reshape(-1, 2),
        passage_numbers=tuple(numbers),
    )
    signals = {"token_entropy": np.asarray(scores, dtype=np.float32)}
    if attention is not None:
        signals["passage_attention"] = np.asarray(attention, dtype=np.float32)
    return gs.Trace(layout, signals, attention_layers=(0, 1, 2, 3), blind_layers=blind)


def verdict_of(*traces, threshold=1.0, span=None, response=RESPONSE, passages=PASSAGES, detector=None):
    lines = Threshold(threshold, threshold if span is None else span, "the test")
    example = gs.Example("When?", passages, response, id="e")
    return Assembler(detector or Given(), "tiny").verdict(example, traces, lines)


WORDS = [RESPONSE[start:end] for start, end in word_spans(RESPONSE)]
YEAR, ROME = WORDS.index("1887"), WORDS.index("Rome")


def scores_with(**high):
    scores = np.zeros(len(WORDS))
    for index, value in high.items():
        scores[int(index[1:])] = value
    return scores


def test_score_spans_and_sentences_agree_with_the_token_scores():
    scores = scores_with(**{f"t{YEAR}": 4.0, f"t{ROME}": 2.0})
    verdict = verdict_of(trace_of(scores), threshold=0.3, span=1.0)
    assert verdict.outcome == "scored" and not verdict.unscored
    assert verdict.score == pytest.approx(6 / len(WORDS)) and verdict.flagged
    assert [(span.text, span.score) for span in verdict.spans] == [("1887", 4.0), ("Rome", 2.0)]
    assert [token.text for token in verdict.tokens] == WORDS
    assert [token.score for token in verdict.tokens] == pytest.approx(scores.tolist())
    assert [s.text for s in verdict.sentences] == ["The tower was completed in 1887.", "It stands in Rome, Italy."]
    assert [sentence.flagged for sentence in verdict.sentences] == [True, True]
    one = verdict_of(trace_of(scores), threshold=0.3, span=3.0)
    assert [sentence.flagged for sentence in one.sentences] == [True, False]
    assert (verdict.detector, verdict.model, verdict.id, verdict.question) == ("given", "tiny", "e", "When?")
    assert verdict.aggregation == "mean over tokens" and verdict.passages == PASSAGES
    assert verdict.contrast is None


def test_the_threshold_itself_flags():
    verdict = verdict_of(trace_of(np.ones(len(WORDS))), threshold=1.0)
    assert verdict.flagged and len(verdict.spans) == 1
    below = verdict_of(trace_of(np.ones(len(WORDS)) - 1e-3), threshold=1.0)
    assert below.flagged is False and below.spans == ()


def test_spans_are_cut_from_smoothed_scores():
    class Wide(Given):
        window = 4

    scores = scores_with(**{f"t{YEAR}": 4.0})
    narrow, wide = verdict_of(trace_of(scores)), verdict_of(trace_of(scores), detector=Wide())
    assert narrow.spans[0].text == "1887"
    assert len(wide.spans[0].text) > 4 and "1887" in wide.spans[0].text
    assert [t.score for t in wide.tokens] == [t.score for t in narrow.tokens] and wide.score == narrow.score
    assert [t.stretch for t in narrow.tokens] == [t.score for t in narrow.tokens]
    assert wide.tokens[YEAR].stretch == pytest.approx(1.0)


def test_spans_may_be_cut_from_scores_of_another_unit():
    class Bounded(Given):
        def span_scores(self, trace):
            return np.tanh(self.token_scores(trace))

    verdict = verdict_of(trace_of(scores_with(**{f"t{YEAR}": 4.0})), threshold=0.1, span=0.9, detector=Bounded())
    assert [span.text for span in verdict.spans] == ["1887"]
    assert verdict.spans[0].score == pytest.approx(np.tanh(4.0))
    assert verdict.tokens[YEAR].score == 4.0 and verdict.tokens[YEAR].level == pytest.approx(np.tanh(4.0))


def test_a_flagged_answer_without_a_standing_out_stretch_points_at_its_highest_sentence():
    scores = scores_with(**{f"t{ROME}": 2.0})
    verdict = verdict_of(trace_of(scores), threshold=0.1, span=9.0)
    assert verdict.flagged and [span.text for span in verdict.spans] == ["It stands in Rome, Italy."]
    assert verdict_of(trace_of(scores), threshold=5.0, span=9.0).spans == ()


def test_evidence_is_the_share_of_attention_on_each_passage():
    attention = np.full((len(WORDS), 3), 0.1)
    attention[YEAR] = [0.1, 0.3, 0.0]
    verdict = verdict_of(trace_of(scores_with(**{f"t{YEAR}": 4.0}), attention))
    (span,) = verdict.spans
    assert [(e.passage, pytest.approx(e.weight, abs=1e-6)) for e in span.evidence] == [(1, 0.75), (0, 0.25)]


def test_evidence_names_at_most_three_passages_and_only_what_was_looked_at():
    many = tuple(f"p{i}" for i in range(5))
    attention = np.tile([0.1, 0.2, 0.3, 0.25, 0.15], (len(WORDS), 1))
    trace = trace_of(np.ones(len(WORDS)), attention, numbers=range(5))
    (span,) = verdict_of(trace, passages=many).spans
    assert [e.passage for e in span.evidence] == [2, 3, 1]
    assert sum(e.weight for e in span.evidence) == pytest.approx(0.75, abs=1e-6)
    (span,) = verdict_of(trace_of(np.ones(len(WORDS)), np.zeros((len(WORDS), 3)))).spans
    assert span.evidence == ()
    (span,) = verdict_of(trace_of(np.ones(len(WORDS)))).spans
    assert span.evidence == ()


def test_the_prompt_that_supports_a_token_best_gives_its_score_and_its_evidence():
    first, second = np.full(len(WORDS), 5.0), np.full(len(WORDS), 5.0)
    first[: ROME - 1], second[YEAR:] = 0.0, 0.5  # each supports a part
    attention = np.full((len(WORDS), 1), 0.4)
    verdict = verdict_of(
        trace_of(first, attention, numbers=(0,)), trace_of(second, attention, numbers=(2,)), threshold=0.4
    )
    assert [token.score for token in verdict.tokens] == pytest.approx(np.minimum(first, second).tolist())
    (span,) = verdict.spans
    assert span.text.startswith("in Rome") and [(e.passage, e.weight) for e in span.evidence] == [(2, 1.0)]
    assert "read in 2 prompts" in verdict.message and verdict.outcome == "scored" and not verdict.unscored


def test_a_passage_cut_in_two_prompts_is_one_passage_of_the_evidence():
    attention = np.full((len(WORDS), 2), 0.2)
    (span,) = verdict_of(trace_of(np.ones(len(WORDS)), attention, numbers=(1, 1))).spans
    assert [(e.passage, e.weight) for e in span.evidence] == [(1, 1.0)]


def test_layers_that_cannot_see_all_passages_are_reported():
    verdict = verdict_of(trace_of(np.zeros(len(WORDS)), blind=3))
    assert verdict.message == "3 of 4 attention layers have a window too short to see all passages."
    assert verdict_of(trace_of(np.zeros(len(WORDS)))).message == ""


def test_characters_that_no_token_covers_are_unscored():
    offsets = [span for span in word_spans(RESPONSE) if RESPONSE[slice(*span)] != "Rome"]
    verdict = verdict_of(trace_of(np.zeros(len(offsets)), offsets=offsets))
    start = RESPONSE.index("Rome")
    assert verdict.outcome == "partial"
    assert [(hole.start, hole.end) for hole in verdict.unscored] == [(start, start + 4)]
    assert "drops" in verdict.unscored[0].reason


@pytest.mark.parametrize("outcome", [name for name in OUTCOMES if name not in ("scored", "partial")])
@pytest.mark.parametrize("response", ["", "It was 1887."])
def test_an_unscored_verdict_is_neither_flagged_nor_clean(outcome, response):
    example = gs.Example("q", ("p",), response, id="7")
    verdict = Assembler(Given(), "tiny").unscored(example, outcome, "because")
    assert (verdict.outcome, verdict.score, verdict.flagged, verdict.message) == (outcome, None, None, "because")
    assert not verdict.spans and not verdict.tokens and verdict.id == "7"
    assert [(hole.start, hole.end) for hole in verdict.unscored] == ([(0, len(response))] if response else [])


@settings(max_examples=60)
@given(st.data())
def test_whatever_the_scores_a_verdict_is_consistent(data):
    response = data.draw(
        st.sampled_from([RESPONSE, "東京は🎉首都。Yes!", "a\n\nb . . c", "Paris Paris Paris, 0.002 g."])
    )
    offsets = word_spans(response)
    finite = st.floats(-50, 50, width=32)
    scores = data.draw(st.lists(finite, min_size=len(offsets), max_size=len(offsets)))
    attention = data.draw(
        st.lists(st.tuples(*[st.floats(0, 1, width=32)] * 3), min_size=len(offsets), max_size=len(offsets))
    )
    verdict = verdict_of(
        trace_of(scores, attention, response, offsets), threshold=data.draw(st.floats(-60, 60)), response=response
    )
    borders = {edge for span in word_spans(response) for edge in span}
    for piece in (*verdict.tokens, *verdict.spans, *verdict.sentences):
        assert response[piece.start : piece.end] == piece.text
    assert all(span.start in borders and span.end in borders for span in verdict.spans)
    assert all(a.end <= b.start for a, b in zip(verdict.spans, verdict.spans[1:], strict=False))
    covered = {i for sentence in verdict.sentences for i in range(sentence.start, sentence.end)}
    assert all(i in covered for i, char in enumerate(response) if not char.isspace())
    for span in verdict.spans:
        weights = [e.weight for e in span.evidence]
        assert weights == sorted(weights, reverse=True) and sum(weights) <= 1 + 1e-9 and all(w > 0 for w in weights)
    assert verdict.flagged == (verdict.score >= verdict.threshold.response)
    assert gs.Verdict.from_dict(verdict.to_dict()) == verdict
