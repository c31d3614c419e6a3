"""Chunks of layouts: characters to tokens, of passages inside a prompt and of the response."""

from __future__ import annotations

import numpy as np
import pytest

import groundscope as gs
from groundscope.errors import LayoutError
from groundscope.example import Example
from groundscope.lm.chunking import attach_chunks
from groundscope.lm.prompt.chunks import Chunks
from groundscope.lm.prompt.template import PromptTemplate
from groundscope.text.chunks import ChunkConfig, split_chunks

PASSAGES = (
    "The tower was completed in 1889. It stands in Paris.\n\nIt was built by the engineers of the company.",
    "Bees make honey 🐝 from nectar. 蜂は蜜を作る。The river rises in the mountains.",
)
RESPONSE = "It was completed in 1887.  \n\nBees make 🐝 honey, and the river flows into the northern sea."
EXAMPLE = Example(question="When was it finished?", passages=PASSAGES, response=RESPONSE, id="e1")


CONFIG = ChunkConfig(40, 8)


def laid_out(lm, example=EXAMPLE, template=None, config=CONFIG):
    layouts = [lm.renderer(template).layout(example)]
    return attach_chunks(lm, example, layouts, config)[0]


def test_offsets_of_passage_tokens_point_into_the_passage(tiny):
    layout = tiny.renderer().layout(EXAMPLE)
    assert layout.passage_texts == PASSAGES
    for (start, end), text, offsets in zip(layout.passages, PASSAGES, layout.passage_offsets, strict=True):
        assert offsets.shape == (end - start, 2)
        covered = sorted({i for a, b in offsets for i in range(a, b)})
        assert covered == list(range(len(text)))
        for token, (a, b) in zip(range(start, end), offsets, strict=True):
            said = tiny.tokenizer.decode([int(layout.prompt_ids[token])])
            assert said == text[a:b] or "\N{REPLACEMENT CHARACTER}" in said


@pytest.mark.parametrize("template", [None, PromptTemplate(user="{passages}", user_without_question="{passages}")])
def test_passage_chunks_hold_the_tokens_of_their_texts(tiny, template):
    layout = laid_out(tiny, template=template)
    want = [PASSAGES[i][a:b] for i in (0, 1) for a, b in split_chunks(PASSAGES[i], 40, 8)]
    assert len(layout.chunks.passages) == len(want) > 4
    for (start, end), text in zip(layout.chunks.passages, want, strict=True):
        said = tiny.tokenizer.decode(layout.prompt_ids[start:end].tolist())
        assert text.strip() in said and len(said) <= len(text) + 12
    spans = [range(start, end) for start, end in layout.passages]
    assert all(any(start in span and end - 1 in span for span in spans) for start, end in layout.chunks.passages)


def test_a_template_that_trims_a_passage_moves_no_offset(tiny):
    """The chat template strips the turn, and with it the passage's own white space."""
    example = Example(question="", passages=("   The tower stands in Paris.  ",), response="Yes it does.")
    tokenizer = tiny.tokenizer
    trimmed = gs.LanguageModel(tiny.model, tokenizer)
    before = tokenizer.chat_template
    try:
        tokenizer.chat_template = before.replace("message['content']", "message['content'].strip()")
        layout = laid_out(trimmed, example, PromptTemplate(user_without_question="{passages}"))
    finally:
        tokenizer.chat_template = before
    assert layout.passage_offsets[0].min() == 3
    assert layout.passage_offsets[0].max() == len(example.passages[0]) - 2
    (chunk,) = layout.chunks.passages
    assert tiny.tokenizer.decode(layout.prompt_ids[slice(*chunk)].tolist()) == "The tower stands in Paris."


def test_response_chunks_cut_all_tokens_without_overlap(tiny):
    layout = laid_out(tiny)
    borders = [0, *(end for _, end in layout.chunks.response)]
    assert [start for start, _ in layout.chunks.response] == borders[:-1]
    assert borders[-1] == layout.response_length and len(borders) > 3
    pieces = [p for p in split_chunks(RESPONSE, 40, 8) if RESPONSE[slice(*p)].strip()]
    assert len(pieces) == len(layout.chunks.response)
    for (start, end), (first, last) in zip(layout.chunks.response, pieces, strict=True):
        offsets = np.asarray(layout.response_offsets)[start:end]
        # Every token is of its own text, apart from the white space before the next text.
        assert offsets[0, 0] >= first and RESPONSE[last : offsets[-1, 1]].strip() == ""


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_any_size_gives_a_partition(tiny, size):
    layout = laid_out(tiny, config=ChunkConfig(size, min(2, size - 1)))
    assert layout.chunks.response[-1][1] == layout.response_length
    if size == 1000:
        assert layout.chunks.response == ((0, layout.response_length),) and layout.chunks.passages == layout.passages


def test_white_space_is_no_chunk(tiny):
    example = Example(question="?", passages=("Paris." + " " * 50, "  \n "), response="   \n\n  Yes.")
    layout = laid_out(tiny, example, config=ChunkConfig(10, 0))
    assert len(layout.chunks.passages) == 1 and len(layout.chunks.response) == 1
    blank = laid_out(tiny, Example(question="?", passages=("Paris.",), response="  \n  "), config=ChunkConfig(2, 0))
    assert blank.chunks.response == ((0, blank.response_length),)


def test_layouts_made_from_ids_are_refused(tiny):
    layout = gs.Layout.from_ids([1, 2, 3], [4], passages=[(1, 2)])
    with pytest.raises(LayoutError, match="example 'e1' made from ids alone"):
        attach_chunks(tiny, EXAMPLE, [layout], ChunkConfig())


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        (Chunks(((0, 4),), ((0, 2),)), "Passage chunks .*length 3"),
        (Chunks(((2, 2),), ((0, 2),)), "Passage chunks"),
        (Chunks(((0, 2),), ((0, 1),)), "Response chunks .*length 2"),
        (Chunks(((0, 2),), ((0, 1), (0, 2))), "Response chunks"),
        (Chunks(((0, 2),), ((0, 2), (2, 2))), "Response chunks"),
        (Chunks(((0, 2),), ()), "Response chunks"),
        (Chunks(((0, 2),), ((0, 2),), np.ones((2, 1), np.float32)), r"similarity .* \(1, 1\). Got shape \(2, 1\)"),
        (Chunks(((0, 2),), ((0, 2),), np.full((1, 1), np.nan, np.float32)), "finite"),
    ],
)
def test_chunks_must_fit_their_layout(chunks, words):
    from dataclasses import replace

    layout = gs.Layout.from_ids([1, 2, 3], [4, 5], passages=[(1, 2)])
    with pytest.raises(LayoutError, match=words):
        replace(layout, chunks=chunks)
