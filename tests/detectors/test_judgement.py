"""What a sentence model may say, and how several prompts are joined."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundscope.detectors.judgement import (
    Judgement,
    Nearest,
    Reason,
    SentenceJudgement,
    check_judgement,
    merge_judgements,
)
from groundscope.errors import InputError

RESPONSE = "In 1887.  In Rome. "
PASSAGES = ("In 1889.", "Paris.")
FIRST = SentenceJudgement(0, 8, 2.0, 0.9, (Reason("text", 1.0, "'1887' stands in no passage"),), Nearest(0, 0, 8, 0.5))
SECOND = SentenceJudgement(10, 18, -1.0, 0.2)
GOOD = Judgement((FIRST, SECOND), 1.5, 0.8)


def worst(sentences):
    item = max(sentences, key=lambda item: item.score)
    return item.score, item.probability


def test_a_judgement_of_the_response_passes():
    assert check_judgement(GOOD, RESPONSE, PASSAGES) is GOOD


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        0.5,
        replace(GOOD, sentences=[FIRST, SECOND]),
        replace(GOOD, sentences=(FIRST,)),
        replace(GOOD, sentences=()),
        replace(GOOD, sentences=(SECOND, FIRST)),
        replace(GOOD, sentences=(FIRST, FIRST, SECOND)),
        replace(GOOD, sentences=(FIRST, (10, 18))),
        replace(GOOD, sentences=(FIRST, replace(SECOND, end=99))),
        replace(GOOD, sentences=(FIRST, replace(SECOND, start=11))),
        replace(GOOD, sentences=(FIRST, replace(SECOND, end=17))),
        replace(GOOD, sentences=(FIRST, replace(SECOND, start=10.0))),
        replace(GOOD, sentences=(FIRST, replace(SECOND, score=math.nan))),
        replace(GOOD, sentences=(FIRST, replace(SECOND, score=None))),
        replace(GOOD, sentences=(FIRST, replace(SECOND, probability=1.2))),
        replace(GOOD, sentences=(FIRST, replace(SECOND, reasons=("why",)))),
        replace(GOOD, sentences=(FIRST, replace(SECOND, reasons=[]))),
        replace(GOOD, sentences=(FIRST, replace(SECOND, nearest=Nearest(2, 0, 1, 0.5)))),
        replace(GOOD, sentences=(FIRST, replace(SECOND, nearest=Nearest(1, 0, 8, 0.5)))),
        replace(GOOD, score=math.inf),
        replace(GOOD, score=1e301),
        replace(GOOD, probability=-0.1),
        replace(GOOD, probability=math.nan),
    ],
    ids=repr,
)
def test_anything_else_is_refused(wrong):
    with pytest.raises(InputError):
        check_judgement(wrong, RESPONSE, PASSAGES)


def test_one_prompt_is_kept_as_it_is():
    assert merge_judgements([GOOD], worst) is GOOD


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=2, max_size=5))
def test_a_sentence_supported_in_any_prompt_counts_as_supported(scores):
    prompts = [
        Judgement((replace(FIRST, score=one, probability=0.1), replace(SECOND, score=two)), 9.0, 0.99)
        for one, two in scores
    ]
    merged = merge_judgements(prompts, worst)
    lowest = [min(column) for column in zip(*scores, strict=True)]
    assert [item.score for item in merged.sentences] == lowest
    assert merged.score == max(lowest)
    assert all(merged.sentences[i] in [prompt.sentences[i] for prompt in prompts] for i in (0, 1))


def test_prompts_must_judge_the_same_sentences():
    with pytest.raises(InputError, match="same sentences"):
        merge_judgements([GOOD, Judgement((replace(FIRST, end=18),), 0.0, 0.5)], worst)


@pytest.mark.parametrize("whole", [(math.nan, 0.5), (0.0, 2.0)])
def test_the_response_of_several_prompts_must_have_numbers_too(whole):
    with pytest.raises(InputError, match="for the response"):
        merge_judgements([GOOD, GOOD], lambda sentences: whole)
