"""Passages cut at the sentences to compare with."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from sample_verdicts import PASSAGES, flagged, judged

from groundscope.report.verdict.passages import NearestSentences
from groundscope.verdict import Nearest, Verdict


@given(st.data())
def test_pieces_are_the_passage_and_hold_what_they_say(data: st.DataObject) -> None:
    passage = data.draw(st.text(st.sampled_from("ab .e\u0301👩\u200d🏽你"), max_size=20))
    place = st.integers(0, len(passage))
    ranges = data.draw(st.lists(st.tuples(place, place).map(sorted), max_size=4))
    whole = flagged().sentences[0]
    sentences = tuple(replace(whole, nearest=Nearest(0, start, end, 0.5)) for start, end in ranges)
    nearest = NearestSentences(flagged(passages=(passage,), sentences=sentences))
    pieces = list(nearest.pieces(0))
    assert "".join(piece.text for piece in pieces) == passage
    opened = [number for piece in pieces for number in piece.opens]
    wanted = {nearest.number(item.nearest) for item in sentences}
    assert len(opened) == len(set(opened)) and set(opened) == wanted
    for item in sentences:
        held = "".join(piece.text for piece in pieces if nearest.number(item.nearest) in piece.inside)
        assert passage[item.nearest.start : item.nearest.end] in held


def test_the_same_sentence_has_one_number() -> None:
    verdict = judged()
    nearest = NearestSentences(verdict)
    first, second = (nearest.number(item.nearest) for item in verdict.sentences[:2])
    assert (first, second) == (0, 1) and nearest.number(verdict.spans[0].nearest) == first
    assert nearest.number(None) is None and nearest.text(None) == ""
    assert nearest.text(verdict.sentences[1].nearest) == PASSAGES[1]
    assert nearest.text(verdict.sentences[1].nearest, 10) == "The tow..."


def test_without_passages_there_is_nothing_to_point_at() -> None:
    verdict = Verdict.from_dict(judged().to_dict(include_context=False))
    nearest = NearestSentences(verdict)
    assert nearest.number(verdict.sentences[0].nearest) is None and nearest.text(verdict.sentences[0].nearest) == ""
