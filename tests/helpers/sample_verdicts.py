"""Verdicts as the reports get them, and verdicts made of anything."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from groundscope.example import Label
from groundscope.text.sentences import split_sentences
from groundscope.text.words import word_spans
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

RESPONSE = "The tower was completed in 1887 by Eiffel's company."
PASSAGES = (
    "Gustave Eiffel was an engineer. The tower was completed on 31 March 1889.",
    "The tower is 330 metres tall.",
)
HOSTILE = (
    "<script>alert(1)</script> {{ 7*7 }} {% raw %} </style> </div> [bold red]x[/] :smile: "
    "\x00 \x1b[2J\x9b31m "
    "\u202eevil \r\n &amp; \"q\" 'q' \u2066\t1️⃣ 👩‍👩‍👧"
)


def flagged(**changes: Any) -> Verdict:
    """A scored verdict with one span on "1887"."""
    hot = (27, 31)
    tokens = []
    for start, end in word_spans(RESPONSE):
        begin = start - 1 if start and RESPONSE[start - 1] == " " else start
        tokens.append(TokenScore(begin, end, RESPONSE[begin:end], 2.5 if (start, end) == hot else -1.0))
    values: dict[str, Any] = {
        "outcome": "scored",
        "response": RESPONSE,
        "score": 1.75,
        "flagged": True,
        "aggregation": "mean of the highest tenth",
        "detector": "contrast",
        "model": "smollm2-135m",
        "threshold": Threshold(1.0, 0.5, "a reference sample"),
        "tokens": tuple(tokens),
        "spans": (Span(*hot, "1887", 2.5, (Evidence(1, 0.25), Evidence(0, 0.75))),),
        "sentences": (SentenceScore(0, len(RESPONSE), RESPONSE, -0.5, True),),
        "contrast": {"seed": 0, "source": "built-in pool"},
        "id": "q-1",
        "question": "When was it completed?",
        "passages": PASSAGES,
    }
    if changes.get("response", RESPONSE) != RESPONSE:  # the stretches above belong to this one response
        values |= {"tokens": (), "spans": (), "sentences": ()}
    if len(changes.get("passages", PASSAGES)) == 1:
        values["spans"] = tuple(replace(span, evidence=(Evidence(0, 1.0),)) for span in values["spans"])
    return Verdict(**(values | changes))


ANSWER = (
    "The tower was completed in 1887 by Eiffel's company. It is 330 metres tall. "
    "Additionally, it attracts over nine million visitors a year."
)


def judged(**changes: Any) -> Verdict:
    """A verdict with probabilities: two of its three sentences are flagged, one has a span inside."""
    first, second, third = split_sentences(ANSWER)
    why = (
        Reason("text", 1.75, "'1887' stands in no passage"),
        Reason("attention", 0.8, "attention left the passages"),
        Reason("contrast", 0.4, "a random document explains it as well"),
        Reason("surprise", -0.3, "the words were expected"),
    )
    year = (ANSWER.index("1887"), ANSWER.index("1887") + 4)
    near = Nearest(0, PASSAGES[0].index("The tower"), len(PASSAGES[0]), 0.6)
    second_near = Nearest(1, 0, len(PASSAGES[1]), 0.75)
    added = (Reason("text", 2.1, "no passage speaks of 'visitors'"), Reason("text", 0.6, "begins with 'Additionally'"))
    tokens = tuple(
        TokenScore(start, end, ANSWER[start:end], 2.5 if start in (year[0], year[0] - 1) else -1.0)
        for start, end in word_spans(ANSWER)
    )
    values: dict[str, Any] = {
        "outcome": "scored",
        "response": ANSWER,
        "score": 1.5,
        "flagged": True,
        "aggregation": "learnt from its sentences",
        "detector": "fusion",
        "model": "smollm2-135m",
        "threshold": Threshold(0.25, 0.5, "held-out sources of four sets", -0.25, 0.61, 0.4),
        "tokens": tokens,
        "spans": (
            Span(*year, "1887", 2.5, (Evidence(0, 0.75), Evidence(1, 0.25)), 0.91, why, near),
            Span(*third, ANSWER[third[0] : third[1]], -1.0, (Evidence(1, 1.0),), 0.72, added),
        ),
        "sentences": (
            SentenceScore(*first, ANSWER[first[0] : first[1]], 2.3, True, 0.91, why, near),
            SentenceScore(
                *second, ANSWER[second[0] : second[1]], -4.1, False, 0.004,
                (Reason("text", -2.0, "all of its numbers stand in passage 2"),), second_near,
            ),
            SentenceScore(*third, ANSWER[third[0] : third[1]], 0.9, True, 0.72, added),
        ),
        "id": "q-2",
        "question": "When was it completed?",
        "passages": PASSAGES,
        "probability": 0.83,
        "profile": "answers of RAGTruth",
    }  # fmt: skip
    return Verdict(**(values | changes))


def not_scored(outcome: str, **changes: Any) -> Verdict:
    """A verdict without a score."""
    values: dict[str, Any] = {
        "outcome": outcome,
        "response": "",
        "score": None,
        "flagged": None,
        "aggregation": "mean",
        "detector": "contrast",
        "model": "smollm2-135m",
        "message": "There is nothing to check.",
    }
    return Verdict(**(values | changes))


def hostile() -> Verdict:
    """A verdict in which every text wants to break out."""
    start = HOSTILE.index("evil")
    why = (Reason(HOSTILE, 1.0, HOSTILE), Reason(HOSTILE, -1.0, HOSTILE))
    near = Nearest(1, 3, len(HOSTILE) - 1, 1.0)
    return Verdict(
        outcome="partial",
        response=HOSTILE,
        score=0.25,
        flagged=False,
        aggregation=HOSTILE,
        detector=HOSTILE,
        model=HOSTILE,
        threshold=Threshold(1.0, 0.5, HOSTILE),
        tokens=(TokenScore(0, 8, HOSTILE[:8], 0.75), TokenScore(8, 12, HOSTILE[8:12], -0.25)),
        spans=(Span(0, 8, HOSTILE[:8], 0.75, (Evidence(0, 1.0), Evidence(1, 0.0)), None, why, near),),
        sentences=(SentenceScore(0, len(HOSTILE), HOSTILE, None, False, None, why, near),),
        profile=HOSTILE,
        unscored=(Unscored(start, len(HOSTILE), HOSTILE),),
        message=HOSTILE,
        contrast={HOSTILE: HOSTILE},
        id=HOSTILE,
        question=HOSTILE,
        passages=(HOSTILE, HOSTILE),
    )


@st.composite
def verdicts(draw: st.DrawFn) -> tuple[Verdict, list[Label]]:
    """A verdict with tokens, spans, unscored ranges and human labels anywhere in any text."""
    alphabet = st.sampled_from("ab <&{\u0301\u200d👩🏽你\x00\x1b\r\n\u202e⟦") | st.characters(exclude_categories=["Cs"])
    response = draw(st.text(alphabet, max_size=30))

    def ranges(repeat: int) -> list[tuple[int, int]]:
        cuts = sorted(draw(st.sets(st.integers(0, len(response)), max_size=12)))
        found = []
        for pair in itertools.pairwise(cuts):
            found += [pair] * draw(st.integers(0, repeat))
        return found

    score = st.floats(-1e9, 1e9)
    tokens = tuple(TokenScore(s, e, response[s:e], draw(score)) for s, e in ranges(3))
    spans = tuple(Span(s, e, response[s:e], draw(score), (Evidence(0, 1.0),)) for s, e in ranges(1))
    unscored = tuple(Unscored(s, e, "cut off") for s, e in ranges(1))
    share = st.none() | st.floats(0, 1)
    near = [None, *(Nearest(0, s, e, 0.5) for s, e in ranges(1))]
    sentences = tuple(
        SentenceScore(
            s, e, response[s:e], draw(st.none() | score), draw(st.booleans()), draw(share),
            (Reason("text", draw(score), response),), draw(st.sampled_from(near)),
        )
        for s, e in ranges(1)
    )  # fmt: skip
    labels = [Label(s, e, draw(st.sampled_from(["", "conflict"]))) for s, e in ranges(2)]
    verdict = flagged(
        response=response, tokens=tokens, spans=spans, unscored=unscored, sentences=sentences, passages=(response,)
    )
    return verdict, labels
