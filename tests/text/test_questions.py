"""What asks and what tells."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundscope.text.questions import only_asks

QUESTION = "When was it completed?"
ASKS = {
    "When was the tower completed?": "",
    "Who is it? And why?": "",
    "\u201cWhen was it completed?\u201d": "",
    "それはいつ完成しましたか？": "",
    "When was the": QUESTION,
    "  **when WAS": QUESTION,
    "When was the tower completed.": QUESTION,
    "Is this so? When was": QUESTION,
}
TELLS = {
    "": QUESTION,
    "1889": QUESTION,
    "It was completed in 1889.": QUESTION,
    "When was it completed? In 1889.": QUESTION,
    "When the tower was completed": QUESTION,
    "When": QUESTION,
    "The tower was": "The tower was completed when?",
    "When was the": "",
    "Is it so? It is": QUESTION,
}


@pytest.mark.parametrize("text", ASKS)
def test_asks(text):
    assert only_asks(text, ASKS[text])


@pytest.mark.parametrize("text", TELLS)
def test_tells(text):
    assert not only_asks(text, TELLS[text])


@given(st.text(max_size=60), st.text(max_size=30))
def test_what_is_said_after_a_question_is_an_answer(text, question):
    assert not only_asks(f"{text}\nIt was in 1889.", question)
