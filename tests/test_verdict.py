"""What a verdict refuses to say."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from groundscope.errors import InputError
from groundscope.verdict import (
    Evidence,
    Nearest,
    Reason,
    SentenceScore,
    Span,
    Threshold,
    TokenScore,
    Unscored,
    Verdict,
)

SCORED = Verdict(
    outcome="scored",
    response="In 1887.",
    score=1.5,
    flagged=True,
    aggregation="mean",
    detector="contrast",
    model="tiny",
    threshold=Threshold(1.0, 0.5, "a test"),
    tokens=(TokenScore(0, 2, "In", -1.0, 0.5), TokenScore(2, 8, " 1887.", 2.0)),
    spans=(Span(3, 7, "1887", 2.0, (Evidence(0, 1.0),)),),
    sentences=(SentenceScore(0, 8, "In 1887.", None, True),),
    passages=("In 1889.",),
)
WHY = (Reason("text", 1.5, "'1887' stands in no passage"),)
NEAR = Nearest(0, 0, 8, 0.5)


def judged(**changes):
    return SentenceScore(**({"start": 0, "end": 8, "text": "In 1887.", "score": 1.0, "flagged": True} | changes))


REFUSED = [
    {"score": None},
    {"score": math.nan},
    {"score": math.inf},
    {"score": True},
    {"score": "1.5"},
    {"flagged": None},
    {"flagged": 1},
    {"outcome": "failed"},
    {"outcome": "failed", "score": None},
    {"outcome": "no_answer", "flagged": None},
    {"outcome": None},
    {"response": None},
    {"question": 3},
    {"message": None},
    {"detector": None},
    {"id": 5},
    {"passages": ["In 1889."]},
    {"passages": "In 1889."},
    {"passages": (1,)},
    {"contrast": [1]},
    {"threshold": Threshold(math.nan, 0.5, "")},
    {"threshold": 0.5},
    {"tokens": [TokenScore(0, 2, "In", 1.0)]},
    {"tokens": ({"start": 0},)},
    {"tokens": (TokenScore(0, 9, "In 1887.", 1.0),)},
    {"tokens": (TokenScore(-1, 8, ".", 1.0),)},
    {"tokens": (TokenScore(0, 2, "on", 1.0),)},
    {"tokens": (TokenScore(0.0, 2, "In", 1.0),)},
    {"tokens": (TokenScore(0, 2, "In", math.nan),)},
    {"tokens": (TokenScore(0, 2, "In", 1.0, math.inf),)},
    {"spans": (Span(3, 7, "1889", 1.0),)},
    {"spans": (Span(3, 7, "1887", math.nan),)},
    {"spans": (Span(3, 7, "1887", None),)},
    {"spans": (Span(3, 7, "1887", 1.0, (Evidence(-1, 1.0),)),)},
    {"spans": (Span(3, 7, "1887", 1.0, (Evidence(1, 1.0),)),)},
    {"spans": (Span(3, 7, "1887", 1.0, (Evidence(0, math.nan),)),)},
    {"sentences": (SentenceScore(0, 8, "In 1887.", math.inf, True),)},
    {"sentences": (SentenceScore(0, 3, "In 1887.", 1.0, True),)},
    {"unscored": (Unscored(7, 9, "cut off"),)},
    {"probability": 1.5},
    {"probability": -0.1},
    {"probability": math.nan},
    {"probability": True},
    {"profile": None},
    {"outcome": "failed", "score": None, "flagged": None, "probability": 0.5},
    {"threshold": Threshold(1.0, 0.5, "", sentence=math.inf)},
    {"threshold": Threshold(1.0, 0.5, "", response_probability=1.1)},
    {"threshold": Threshold(1.0, 0.5, "", sentence_probability=math.nan)},
    {"sentences": (judged(probability=1.01),)},
    {"sentences": (judged(reasons=list(WHY)),)},
    {"sentences": (judged(reasons=("why",)),)},
    {"sentences": (judged(reasons=(Reason("text", math.nan, "why"),)),)},
    {"sentences": (judged(reasons=(Reason("text", 1.0, None),)),)},
    {"sentences": (judged(nearest=0),)},
    {"sentences": (judged(nearest=Nearest(1, 0, 8, 0.5)),)},
    {"sentences": (judged(nearest=Nearest(-1, 0, 8, 0.5)),)},
    {"sentences": (judged(nearest=Nearest(0, 0, 9, 0.5)),)},
    {"sentences": (judged(nearest=Nearest(0, 5, 4, 0.5)),)},
    {"sentences": (judged(nearest=Nearest(0, 0.0, 8, 0.5)),)},
    {"sentences": (judged(nearest=Nearest(0, 0, 8, 1.5)),)},
    {"spans": (Span(3, 7, "1887", 1.0, probability=2.0),)},
    {"spans": (Span(3, 7, "1887", 1.0, reasons=(1,)),)},
    {"spans": (Span(3, 7, "1887", 1.0, nearest=Nearest(0, 0, 99, 0.5)),)},
]


@pytest.mark.parametrize("changes", REFUSED, ids=repr)
def test_a_verdict_that_contradicts_itself_cannot_be_made(changes):
    with pytest.raises(InputError):
        replace(SCORED, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"score": 1},
        {"outcome": "partial", "unscored": (Unscored(2, 3, "dropped"),)},
        {"outcome": "failed", "score": None, "flagged": None},
        {"passages": ()},  # written without its context
        {"contrast": {"seed": 0}},
        {"probability": 1, "profile": "mine", "threshold": Threshold(1.0, 0.5, "it", 0.0, 0.5, 0.25)},
        {"sentences": (judged(probability=0.0, reasons=WHY, nearest=NEAR),)},
        {"spans": (Span(3, 7, "1887", 1.0, (), 1.0, WHY, NEAR),)},
        {"passages": (), "sentences": (judged(nearest=Nearest(3, 90, 99, 0.5)),)},
    ],
    ids=repr,
)
def test_what_agrees_with_itself_is_made_and_read_back(changes):
    verdict = replace(SCORED, **changes)
    assert Verdict.from_dict(verdict.to_dict()) == verdict


def test_a_file_of_schema_version_1_is_read_without_what_it_lacks():
    record = replace(SCORED, passages=()).to_dict() | {"schema_version": 1}
    del record["probability"], record["profile"]
    for item in (*record["spans"], *record["sentences"]):
        del item["probability"], item["reasons"], item["nearest"]
    for name in ("sentence", "response_probability", "sentence_probability"):
        del record["threshold"][name]
    assert Verdict.from_dict(record) == replace(SCORED, passages=())
    for version in (0, 3, "2", None):
        with pytest.raises(InputError, match="schema version 1 or 2 was expected"):
            Verdict.from_dict(record | {"schema_version": version})


@pytest.mark.parametrize("record", [None, [], "text", 5])
def test_a_record_must_be_an_object(record):
    with pytest.raises(InputError, match=r"must be a JSON object\. Got"):
        Verdict.from_dict(record)


@pytest.mark.parametrize(
    "changes",
    [
        {"tokens": None},
        {"tokens": [5]},
        {"tokens": {"start": 0}},
        {"spans": [5]},
        {"spans": [{"start": 3, "end": 7, "text": "1887", "score": 1.0, "evidence": [5]}]},
        {"threshold": [1]},
        {"passages": "In 1889."},
        {"passages": 5},
        {"score": math.nan},
        {"surprise": 1},
        {"probability": "high"},
        {"spans": [SCORED.to_dict()["spans"][0] | {"reasons": [5]}]},
        {"spans": [SCORED.to_dict()["spans"][0] | {"reasons": None}]},
        {"sentences": [SCORED.to_dict()["sentences"][0] | {"nearest": {"passage": 0}}]},
        {"sentences": [SCORED.to_dict()["sentences"][0] | {"nearest": [0, 0, 8, 0.5]}]},
    ],
    ids=repr,
)
def test_a_record_with_wrong_parts_is_refused(changes):
    with pytest.raises(InputError):
        Verdict.from_dict(SCORED.to_dict() | changes)


def test_the_message_names_the_stretch_and_what_was_expected():
    with pytest.raises(InputError, match=r"token 0-9 lies outside the response of 8 code points"):
        replace(SCORED, tokens=(TokenScore(0, 9, "In 1887.", 1.0),))
