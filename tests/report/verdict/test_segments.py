from __future__ import annotations

import pytest
from hypothesis import given
from sample_verdicts import flagged, verdicts

from groundscope.errors import InputError
from groundscope.example import Label
from groundscope.report.verdict.segments import cut_response
from groundscope.text.words import clusters
from groundscope.verdict import Span, TokenScore, Verdict


@given(verdicts())
def test_segments_are_the_response_and_know_what_lies_over_them(case: tuple[Verdict, list[Label]]) -> None:
    verdict, labels = case
    segments = cut_response(verdict, labels)
    assert "".join(segment.text for segment in segments) == verdict.response
    borders = {0} | {end for _, end in clusters(verdict.response)}
    position = 0
    for segment in segments:
        end = position + len(segment.text)
        assert position in borders
        for token in verdict.tokens:
            if token.start < end and position < token.end:
                assert token in segment.tokens
        inside = [i for i, span in enumerate(verdict.spans) if span.start < end and position < span.end]
        assert (segment.span is not None) == bool(inside) or segment.span in inside
        position = end


def test_pieces_of_one_character_make_one_segment_with_their_mean() -> None:
    verdict = flagged(
        response="a🎉", tokens=tuple(TokenScore(1, 2, "🎉", score) for score in (1.0, 2.0, 6.0)), spans=()
    )
    first, second = cut_response(verdict)
    assert (first.text, first.score) == ("a", None)
    assert (second.text, second.score, len(second.tokens)) == ("🎉", 3.0, 3)


def test_a_letter_is_not_parted_from_its_marks() -> None:
    verdict = flagged(
        response="e\u0301x", tokens=(TokenScore(0, 1, "e", 1.0), TokenScore(1, 2, "\u0301", 3.0)), spans=()
    )
    assert [(segment.text, segment.score) for segment in cut_response(verdict)] == [
        ("e\u0301", 2.0),
        ("x", None),
    ]


def test_a_range_outside_the_response_is_refused() -> None:
    with pytest.raises(InputError, match="human label 0-99 lies outside"):
        cut_response(flagged(), [Label(0, 99)])
    with pytest.raises(InputError, match="span 5-4 lies outside"):
        cut_response(flagged(spans=(Span(5, 4, "", 1.0),)))
