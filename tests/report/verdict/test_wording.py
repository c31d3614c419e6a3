from __future__ import annotations

from dataclasses import replace

import pytest
from sample_verdicts import flagged, judged, not_scored

from groundscope.errors import InputError
from groundscope.report.verdict.wording import comparison, excerpt, explanation, headline, probability, span_score
from groundscope.verdict import OUTCOMES, Reason, Span, Threshold, Verdict


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("mark", [True, False, None])
def test_only_a_fully_scored_response_is_called_unflagged(outcome: str, mark: bool | None) -> None:
    scored = outcome in ("scored", "partial")
    changes = {} if scored else {"score": None}
    if scored == (mark is None):  # such a verdict cannot even be made
        with pytest.raises(InputError, match="score"):
            flagged(outcome=outcome, flagged=mark, **changes)
        return
    kind = headline(flagged(outcome=outcome, flagged=mark, **changes)).kind
    assert (kind == "unflagged") == (outcome == "scored" and mark is False)
    if kind == "flagged":
        assert mark
        assert outcome in ("scored", "partial")


def test_the_score_is_compared_with_its_threshold() -> None:
    assert comparison(flagged()) == "score 1.75 >= threshold 1"
    assert comparison(flagged(score=-0.5)) == "score -0.5 < threshold 1"
    assert comparison(flagged(threshold=None)) == "score 1.75"
    assert comparison(not_scored("failed")) == "no score"


def test_people_see_the_probability_and_from_where_it_is_flagged() -> None:
    assert comparison(judged()) == "unsupported with probability 0.83, flagged from 0.61"
    low = judged(score=-2.0, flagged=False, probability=0.12)
    assert comparison(low) == "unsupported with probability 0.12, flagged from 0.61"
    line = Threshold(0.25, 0.5, "a profile")
    assert comparison(judged(threshold=line)) == "unsupported with probability 0.83"
    # Calibration by steps gives scores on both sides of the line the same probability.
    step = judged(score=0.2, flagged=False, probability=0.61)
    assert comparison(step) == "unsupported with probability 0.61, just below where it is flagged"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "<0.01"), (0.004, "<0.01"), (0.005, "0.01"), (0.5, "0.50"), (0.994, "0.99"), (1, ">0.99")],
)
def test_no_probability_is_shown_as_certain(value: float, shown: str) -> None:
    assert probability(value) == shown


def test_reasons_speak_for_what_was_decided_strongest_first() -> None:
    why = (Reason("a", 0.5, "x"), Reason("b", -2.0, "y"), Reason("c", 1.5, "z"), Reason("d", 0.0, "nothing"))
    assert [item.group for item in explanation(why, True)] == ["c", "a"]
    assert [item.group for item in explanation(why, True, 1)] == ["c"]
    assert [item.group for item in explanation(why, False)] == ["b"]


def test_a_span_of_a_judged_answer_says_how_its_sentence_stands() -> None:
    verdict = judged()
    inside, whole = verdict.spans
    assert span_score(inside, verdict) == "probability 0.91"
    assert span_score(whole, verdict) == "probability 0.72 (the whole sentence: no stretch of it stands out)"
    calm = judged(sentences=tuple(replace(item, flagged=False) for item in verdict.sentences))
    assert "its sentence, which is not flagged; the stretch stands out" in span_score(inside, calm)


def test_excerpts_are_one_line_within_the_limit() -> None:
    assert excerpt("a\n b\t c", 10) == "a b c"
    assert excerpt("abcdefghijk", 10) == "abcdefg..."
    assert excerpt("", 10) == ""


def test_a_span_below_the_line_says_why_it_is_there():
    verdict = Verdict(
        outcome="scored", response="It rains.", score=1.0, flagged=True, aggregation="mean", detector="d", model="m",
        threshold=Threshold(0.5, 2.0, "a test"), spans=(Span(0, 9, "It rains.", 0.75),),
    )  # fmt: skip
    text = span_score(verdict.spans[0], verdict)
    assert text.startswith("score 0.75 (the highest sentence") and "no stretch of it reaches 2" in text
    assert span_score(replace(verdict.spans[0], score=2.5), verdict) == "score 2.5"
