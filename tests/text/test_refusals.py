"""What declines to answer, and what only sounds like it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundscope.text.refusals import is_refusal


@pytest.mark.parametrize(
    "text",
    [
        "I don't know.",
        "I don\u2019t know",
        "i do not know!",
        "Unable to answer based on given passages.",
        "I'm sorry, but I cannot answer this question.",
        "I am sorry, I can't find that.",
        "Sorry, I do not have enough information to answer this question.",
        "Based on the passages, I cannot answer the question.",
        "Based on the provided context, it is not possible to determine the year.",
        "According to the text, it is impossible to say.",
        "I couldn't find an answer in the context.",
        "Cannot be determined from the context.",
        "The provided passages do not contain information about the topic.",
        "The context doesn't provide this information.",
        "There is no information about this in the passages.",
        "No answer.",
        "I cannot tell whether it was built.",
        "I cannot answer this. The passages do not mention it.",
        "  I don't know.  ",
    ],
)
def test_declines(text):
    assert is_refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n ",
        "No.",
        "It was completed in 1889.",
        "I don't know. It was Bob.",
        "I don't know, however the tower is tall.",
        "I don't know; it was Bob.",
        "The passage does not say when, but it was completed in the spring.",
        "The document does not mention the price; it is twenty dollars.",
        "I can't provide legal advice but the fine is high.",
        "I cannot answer for 1887.",
        "I cannot say enough good things about Paris.",
        "I'm afraid of dogs and do not like cats.",
        "No information was lost in the breach.",
        "No answer was received from the witnesses.",
        "According to the text, it is not possible to fly.",
        "The tower does not contain information.",
        "Knowing this, I cannot recommend it.",
        "I don't know. " * 30,
    ],
)
def test_is_an_answer(text):
    assert not is_refusal(text)


@given(st.text(max_size=80), st.sampled_from(["It was completed in 1887.", "The king paid for it.", "東京です。"]))
def test_a_refusal_beside_a_claim_is_an_answer(prefix, claim):
    assert not is_refusal(f"I don't know. {claim}")
    assert not is_refusal(f"{claim} I don't know.")
    is_refusal(prefix)  # whatever the text, this raises nothing
