"""The embedded model's own tokenizer and chat template; skipped where the cache does not hold it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rendering import PASSAGES, QUESTION, RESPONSE, check_segments, example, said, texts, without_space
from transformers import AutoTokenizer

from groundscope.lm.loading.embedded import embedded_status
from groundscope.lm.prompt.offsets import derive_offsets, encode, uncovered
from groundscope.lm.prompt.render import Renderer
from groundscope.lm.prompt.template import PromptTemplate


@pytest.fixture(scope="session")
def render():
    status = embedded_status("smollm2-135m")
    if not status.cached:
        pytest.skip("the embedded model is not in the cache; `groundscope models` fetches it")
    return Renderer(AutoTokenizer.from_pretrained(status.path), PromptTemplate(), 8192)


def test_segments(render):
    layout = render.layout(example())
    check_segments(layout)
    shown = texts(render, layout)
    assert [kind for kind, _, _ in shown] == [
        "system", "instruction", "passage", "instruction", "passage", "instruction", "question", "instruction",
        "header", "response",
    ]  # fmt: skip
    assert [text.strip() for kind, _, text in shown if kind == "passage"] == list(PASSAGES)
    assert [text.strip() for kind, _, text in shown if kind == "question"] == [QUESTION]
    assert shown[-2][2] == "<|im_start|>assistant\n"
    assert shown[-1][2] == RESPONSE


def test_ids_are_those_of_the_chat_template(render):
    content = "".join(piece.text for piece in render.template.pieces(QUESTION, PASSAGES))
    expected = render.tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, return_dict=False
    )
    assert render.layout(example()).prompt_ids.tolist() == list(expected)


def test_an_answer_that_begins_with_a_newline_keeps_it(render):
    layout = render.layout(example(response="\nHello world"))
    assert said(render.tokenizer, layout.prompt_ids[slice(*layout.header)]) == "<|im_start|>assistant\n"
    assert said(render.tokenizer, layout.response_ids) == "\nHello world"
    assert layout.response_offsets[0].tolist() == [0, 1]


@pytest.mark.parametrize("text", ["are you ok?", "i ⭢ j", "東京は🎉", "a\x10b…c", "👩‍👩‍👧", "e\u0301 한\u1112"])
def test_derived_offsets_equal_those_of_the_tokenizer(render, text):
    ids, offsets = encode(render.tokenizer, text)
    assert uncovered(text, offsets) == []
    derived = derive_offsets(render.tokenizer, text, ids)
    # A token of pieces of two characters joins them in one group when offsets are derived.
    assert (derived[:, 0] <= offsets[:, 0]).all()
    assert (derived[:, 1] >= offsets[:, 1]).all()
    if text in ("are you ok?", "a\x10b…c"):
        np.testing.assert_array_equal(derived, offsets)


def test_names_of_its_special_tokens_stay_text(render):
    tokenizer = render.tokenizer
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    names = "".join(tokenizer.decode([number]) for number in sorted(special))
    assert len(special) > 10
    layout = render.layout(example((names, names), names, names))
    plain = render.layout(example(("a", "b"), "c", "d"))
    assert not special & set(layout.response_ids.tolist())
    assert sum(i in special for i in layout.prompt_ids.tolist()) == sum(i in special for i in plain.prompt_ids.tolist())
    assert said(tokenizer, layout.response_ids) == names
    assert [without_space(t) for k, _, t in texts(render, layout) if k == "passage"] == [without_space(names)] * 2


def test_characters_that_the_vocabulary_lacks_do_not_shift_the_others(render):
    # This vocabulary has no byte 0x13, 0x1D or 0xF1.
    text = "It is \x13{ old \x13…! and \U00040000} new\x13. \x1d.{"
    ids, offsets = encode(render.tokenizer, text, [(0, len(text))])
    assert [text[start:end] for start, end in uncovered(text, offsets)] == ["\x13"] * 3
    for token, (start, end) in zip(ids, offsets.tolist(), strict=True):
        shown = said(render.tokenizer, [token])
        assert shown == text[start:end] or ("\ufffd" in shown and end == start + 1)
    shown = [text[start:end] for start, end in dict.fromkeys(map(tuple, offsets.tolist()))]
    assert "".join(shown) == text.replace("\x13", "").replace("\x1d", "")


@settings(max_examples=150, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text(render, text):
    ids, offsets = encode(render.tokenizer, text, [(0, len(text))])
    assert len(ids) == len(offsets)
    lost = "".join(text[start:end] for start, end in uncovered(text, offsets))
    assert not any(render.tokenizer(character)["input_ids"] for character in lost)
    back = render.tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    assert without_space(back) == without_space(text) or lost or "\ufffd" in back
