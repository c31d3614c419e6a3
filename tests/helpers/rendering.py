"""Renderers and examples for the tests of layouts, and what must hold for every layout."""

import numpy as np
import tokenizers_zoo as zoo

from groundscope.example import Example
from groundscope.lm.prompt.render import Renderer
from groundscope.lm.prompt.template import PromptTemplate

QUESTION = "When was it completed?"
PASSAGES = ("The tower was completed in 1889.", "The bridge was built in 1932; it is long.")
RESPONSE = "It was completed in 1887."


def renderer(name="chatml", template=None, max_length=None):
    tokenizer = zoo.byte_level(zoo.CHAT_TEMPLATES[name]) if name in zoo.CHAT_TEMPLATES else zoo.ZOO[name]()
    return Renderer(tokenizer, template or PromptTemplate(), max_length)


def example(passages=PASSAGES, question=QUESTION, response=RESPONSE):
    return Example(question=question, passages=passages, response=response)


def said(tokenizer, ids):
    return tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)


def texts(renderer, layout):
    return [(s.kind, s.index, said(renderer.tokenizer, ids_of(layout)[s.start : s.end])) for s in layout.segments]


def ids_of(layout):
    return np.concatenate([layout.prompt_ids, layout.response_ids])


def without_space(text):
    return "".join(text.split())


def check_segments(layout):
    """Segments are disjoint, ordered, and leave no token out."""
    end = 0
    for segment in layout.segments:
        assert segment.start == end
        end = segment.end
    assert end == layout.prompt_length + layout.response_length
    assert layout.segments[-1].kind == "response"
    assert layout.segments[-1].start == layout.prompt_length
    passages = [segment for segment in layout.segments if segment.kind == "passage"]
    assert layout.passages == tuple((segment.start, segment.end) for segment in passages)
    assert layout.header[1] == layout.prompt_length


def special_count(tokenizer, ids):
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    return sum(int(number) in special for number in ids)
