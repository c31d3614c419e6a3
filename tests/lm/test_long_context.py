"""Examples longer than the model's context: refused with numbers, or packed into several prompts."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rendering import RESPONSE, example, renderer, said
from tokenizers_zoo import CORPUS

from groundscope.errors import ContextTooLongError, InputError
from groundscope.lm.prompt.render import resolve_layouts
from groundscope.lm.prompt.template import PromptTemplate


def long_example(count=30, size=12, response=RESPONSE):
    passages = tuple(" ".join(f"fact{number}_{word}" for word in range(size)) for number in range(count))
    return example(passages, response=response)


def test_a_prompt_that_does_not_fit_is_refused_with_numbers():
    render = renderer(max_length=600)
    item = long_example()
    whole = renderer().layout(item)
    with pytest.raises(ContextTooLongError) as caught:
        render.layout(item)
    error = caught.value
    assert (error.prompt_tokens, error.response_tokens) == (whole.prompt_length, whole.response_length)
    assert error.limit == 600
    for number in (whole.prompt_length, whole.response_length, whole.prompt_length + whole.response_length, 600):
        assert str(number) in str(error)
    assert "long_context='chunk'" in str(error)
    with pytest.raises(ContextTooLongError):
        resolve_layouts(render, item, "refuse")
    with pytest.raises(InputError, match=r"'long_context'.*'refuse', 'chunk'.*'truncate'"):
        resolve_layouts(render, item, "truncate")


def test_exactly_at_the_limit_fits():
    layout = renderer().layout(example())
    total = layout.prompt_length + layout.response_length
    assert renderer(max_length=total).fits(example())
    assert renderer(max_length=total).layout(example()).prompt_length == layout.prompt_length
    assert not renderer(max_length=total - 1).fits(example())
    with pytest.raises(ContextTooLongError):
        renderer(max_length=total - 1).layout(example())


def check_chunks(render, item):
    chunks = render.chunks(item)
    rebuilt = {}
    order = []
    for part, numbers in chunks:
        assert render.fits(part)
        assert len(part.passages) == len(numbers)
        assert (part.question, part.response, part.id) == (item.question, item.response, item.id)
        for number, text in zip(numbers, part.passages, strict=True):
            rebuilt[number] = rebuilt.get(number, "") + text
            order.append(number)
    assert order == sorted(order)
    assert [rebuilt.get(number, "") for number in range(len(item.passages))] == list(item.passages)
    return chunks


def test_passages_are_packed_in_order_and_all_are_there():
    render = renderer(max_length=600)
    item = long_example()
    chunks = check_chunks(render, item)
    assert 3 < len(chunks) < len(item.passages)
    layouts = resolve_layouts(render, item, "chunk", contrasts=[item.passages])
    assert [layout.passage_numbers for layout in layouts] == [tuple(numbers) for _, numbers in chunks]
    for layout in layouts:
        assert layout.prompt_length + layout.response_length <= 600
        # The random document is as long as the whole context and is cut to fit.
        assert len(layout.contrast_prompt_ids[0]) + layout.response_length <= 600
        np.testing.assert_array_equal(layout.response_ids, layouts[0].response_ids)
        for (start, end), number in zip(layout.passages, layout.passage_numbers, strict=True):
            assert f"fact{number}_" in said(render.tokenizer, layout.prompt_ids[start:end])


def test_an_example_that_fits_is_not_chunked():
    assert len(resolve_layouts(renderer(max_length=5000), long_example(), "chunk")) == 1
    assert len(resolve_layouts(renderer(), long_example(), "chunk")) == 1


@pytest.mark.parametrize("name", ["chatml", "metaspace_bpe", "slow_bytes", "collapsed"])
def test_a_huge_passage_is_cut_at_white_space(name):
    render = renderer(name, max_length=700)
    words = " ".join(f"word{number}" for number in range(900))
    item = example(("short one", words, "short two"))
    chunks = check_chunks(render, item)
    parts = [text for part, _ in chunks for text in part.passages if "word" in text]
    assert len(parts) > 5
    for part in parts[:-1]:
        assert part[-1].isspace()
        assert all(word.startswith("word") for word in part.split())


def test_a_huge_passage_without_white_space_is_cut_between_characters():
    for name in ("chatml", "slow_bytes"):
        check_chunks(renderer(name, max_length=700), example(("東京🎉" * 600,)))


def test_other_white_space_will_do():
    render = renderer(max_length=500)
    item = example(("\u3000".join(f"東京{number}" for number in range(300)),))
    parts = [text for part, _ in check_chunks(render, item) for text in part.passages]
    assert all(part.endswith("\u3000") for part in parts[:-1])


def test_no_room_for_passages_is_an_error_with_numbers():
    render = renderer(max_length=300)
    with pytest.raises(ContextTooLongError, match="no room for passages") as caught:
        render.chunks(example(response="It was built by many people. " * 20))
    assert caught.value.limit == 300
    with pytest.raises(ContextTooLongError):
        resolve_layouts(render, example(question="Why? " * 200), "chunk")


def test_no_random_document_fits_where_nothing_does():
    bare = renderer().layout(example(()))
    limit = bare.prompt_length + bare.response_length
    layout = renderer(max_length=limit).layout(example(()), contrasts=[("Cats purr. " * 50, "Dogs.")])
    assert len(layout.contrast_prompt_ids[0]) + layout.response_length <= limit


@settings(max_examples=40, deadline=None)
@given(
    passages=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=120), max_size=12),
    limit=st.integers(320, 500),
    separator=st.sampled_from(["\n\n", "", " ", "\n----------\n"]),
)
def test_any_passages_are_chunked_without_loss(passages, limit, separator):
    render = renderer(template=PromptTemplate(separator=separator), max_length=limit)
    check_chunks(render, example(tuple(passages)))


@pytest.mark.parametrize("name", ["chatml", "metaspace_bpe"])
def test_a_passage_of_200000_characters_is_laid_out_and_chunked_in_seconds(name):
    passage = ("The tower was completed in 1889. " * 6200)[:200_000]
    start = time.perf_counter()
    layout = renderer(name).layout(example((passage,)))
    assert time.perf_counter() - start < 5
    assert layout.passage_tokens > 30_000
    start = time.perf_counter()
    check_chunks(renderer(name, max_length=8192), example((passage,)))
    assert time.perf_counter() - start < 15


def test_packs_fit_though_joined_texts_have_more_tokens_than_their_parts():
    render = renderer("metaspace_bpe", PromptTemplate(separator=""), max_length=500)

    def pieces(text):
        return len(render.tokenizer.tokenize(text))

    # Behind the dummy prefix these are single tokens; without it, they are spelt out.
    words = sorted({word for text in CORPUS for word in text.split()}, key=lambda word: pieces("1" + word))
    word = next(word for word in reversed(words) if pieces(word) == 1)
    assert pieces(word * 2) >= 5
    assert len(check_chunks(render, example((word,) * 300))) > 2


def test_a_random_document_shrinks_to_nothing_and_no_further():
    # The passage makes one word of its surroundings, so any other prompt is longer.
    render = renderer("chatml", PromptTemplate(user="The informa{passages}ion {question}"))
    layout = render.layout(example(("t",)), contrasts=[()])
    limit = layout.prompt_length + layout.response_length
    assert len(layout.contrast_prompt_ids[0]) > layout.prompt_length
    tight = renderer("chatml", render.template, limit).layout(example(("t",)), contrasts=[("Cats purr.", "Dogs.")])
    np.testing.assert_array_equal(tight.contrast_prompt_ids[0], layout.contrast_prompt_ids[0])
