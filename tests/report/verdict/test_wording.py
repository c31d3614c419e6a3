from __future__ import annotations

from dataclasses import replace

import pytest
from sample_verdicts import flagged, not_scored

from groundscope.errors import InputError
from groundscope.report.verdict.wording import comparison, excerpt, headline, span_score
from groundscope.verdict import OUTCOMES, Span, Threshold, Verdict


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("mark", [True, False, None])
def test_only_a_fully_scored_unflagged_response_is_called_clean(outcome: str, mark: bool | None) -> None:
    scored = outcome in ("scored", "partial")
    changes = {} if scored else {"score": None}
    if scored == (mark is None):  # such a verdict cannot even be made
        with pytest.raises(InputError, match="score"):
            flagged(outcome=outcome, flagged=mark, **changes)
        return
    kind = headline(flagged(outcome=outcome, flagged=mark, **changes)).kind
    assert (kind == "clean") == (outcome == "scored" and mark is False)
    if kind == "flagged":
        assert mark
        assert outcome in ("scored", "partial")


def test_the_score_is_compared_with_its_threshold() -> None:
    assert comparison(flagged()) == "score 1.75 >= threshold 1"
    assert comparison(flagged(score=-0.5)) == "score -0.5 < threshold 1"
    assert comparison(flagged(threshold=None)) == "score 1.75"
    assert comparison(not_scored("failed")) == "no score"


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
