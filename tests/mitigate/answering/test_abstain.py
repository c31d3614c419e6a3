"""Abstaining: what is shown in place of an answer, and what is said to be missing from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundscope.errors import InputError
from groundscope.mitigate.answering.abstain import REFUSAL, Removed, abstain
from groundscope.text.refusals import is_refusal
from groundscope.text.sentences import split_sentences
from groundscope.verdict import SentenceScore, Span, Threshold, Verdict

TEXT = "It was built in 1889.  A king paid for it.\nIt stands in Paris."


def verdict_of(text: str, unsupported: set[int], score: float = 2.0, line: float = 1.0) -> Verdict:
    ranges = split_sentences(text)
    sentences = tuple(SentenceScore(s, e, text[s:e], float(i), i in unsupported) for i, (s, e) in enumerate(ranges))
    spans = tuple(Span(s, e, text[s:e], 3.0) for i, (s, e) in enumerate(ranges) if i in unsupported)
    return Verdict(
        "scored", text, score, score >= line, "mean", "given", "m", Threshold(line, 1.0, "given"), (), spans, sentences
    )


def test_the_refusal_is_one():
    assert is_refusal(REFUSAL)


def test_below_the_threshold_an_answer_is_kept():
    for mode in ("refuse", "remove"):
        kept = abstain(verdict_of(TEXT, {1}, score=0.5), mode)
        assert (kept.text, kept.action, kept.removed) == (TEXT, "kept", ())


def test_above_it_is_refused_whole():
    done = abstain(verdict_of(TEXT, {1}))
    assert (done.text, done.action) == (REFUSAL, "refused")
    assert done.removed == (Removed(0, len(TEXT), TEXT, 2.0),) and "2" in done.reason
    assert abstain(verdict_of(TEXT, {1}), refusal="No.").text == "No."
    assert abstain(verdict_of(TEXT, {1}, score=0.5), threshold=0.5).action == "refused"
    assert abstain(verdict_of(TEXT, {1}), threshold=2.1).action == "kept"


@pytest.mark.parametrize(
    ("unsupported", "text"),
    [
        ({1}, "It was built in 1889.  It stands in Paris."),
        ({0}, "A king paid for it.\nIt stands in Paris."),
        ({2}, "It was built in 1889.  A king paid for it."),
        ({0, 2}, "A king paid for it."),
    ],
)
def test_unsupported_sentences_are_removed_and_reported(unsupported, text):
    done = abstain(verdict_of(TEXT, unsupported), "remove")
    assert (done.text, done.action) == (text, "removed")
    assert [TEXT[item.start : item.end] for item in done.removed] == [item.text for item in done.removed]
    assert [item.score for item in done.removed] == [float(i) for i in sorted(unsupported)]


def test_where_nothing_is_left_or_nothing_stands_out_it_is_refused():
    for unsupported in ({0, 1, 2}, set()):
        assert abstain(verdict_of(TEXT, unsupported), "remove").action == "refused"


@pytest.mark.parametrize(
    ("outcome", "action"),
    [("failed", "refused"), ("too_long", "refused"), ("no_context", "refused"), ("no_answer", "kept")],
)
def test_what_was_not_checked_is_not_vouched_for(outcome, action):
    verdict = Verdict(outcome, TEXT, None, None, "mean", "given", "m", message="why")
    for mode in ("refuse", "remove"):
        assert abstain(verdict, mode).action == action


@given(st.text(alphabet="ab. \nA?", max_size=40), st.sets(st.integers(0, 6)))
def test_nothing_removed_is_shown_and_nothing_else_is_lost(text, unsupported):
    done = abstain(verdict_of(text, unsupported), "remove")
    flagged = [split_sentences(text)[i] for i in sorted(unsupported) if i < len(split_sentences(text))]
    if done.action == "removed":
        assert [(item.start, item.end) for item in done.removed] == flagged
        left = "".join(text[s:e] for s, e in split_sentences(text) if (s, e) not in flagged)
        assert "".join(done.text.split()) == "".join(left.split())
    else:
        assert done.text == REFUSAL
    assert done.to_dict()["removed"] == [vars(item) for item in done.removed]


def test_wrong_use_is_refused():
    with pytest.raises(InputError, match="mode"):
        abstain(verdict_of(TEXT, {1}), "hide")
    with pytest.raises(InputError, match="threshold"):
        abstain(verdict_of(TEXT, {1}), threshold=float("nan"))
    with pytest.raises(InputError, match="refusal"):
        abstain(verdict_of(TEXT, {1}), refusal=None)
