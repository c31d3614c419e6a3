from __future__ import annotations

from sample_verdicts import PASSAGES, flagged

from groundscope.report.verdict.excerpts import Excerpts
from groundscope.verdict import Span


def test_the_sentence_that_shares_rare_words_is_chosen() -> None:
    verdict = flagged(response="It opened. It was completed in March 1887.")
    span = Span(37, 41, "1887", 2.0)
    assert Excerpts(verdict).find(span, 0) == "The tower was completed on 31 March 1889."
    assert Excerpts(verdict).find(span, 0, limit=12) == "The tower..."


def test_without_a_shared_word_the_first_sentence_is_shown() -> None:
    verdict = flagged(response="xyzzy")
    assert Excerpts(verdict).find(Span(0, 5, "xyzzy", 2.0), 0) == PASSAGES[0].split(". ")[0] + "."


def test_a_passage_that_is_not_at_hand_gives_nothing() -> None:
    span = Span(27, 31, "1887", 2.0)
    assert Excerpts(flagged(passages=())).find(span, 0) == ""
    assert Excerpts(flagged()).find(span, -1) == ""
    assert Excerpts(flagged(passages=(" \n",))).find(span, 0) == ""
