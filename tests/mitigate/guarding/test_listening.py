"""A foreign text as it comes: its tokens are those of the whole text, and what changes is taken back."""

from __future__ import annotations

import numpy as np
import pytest
import tokenizers_zoo as zoo
from hypothesis import given, settings
from hypothesis import strategies as st

import groundscope as gs
from groundscope.errors import LayoutError
from groundscope.lm.prompt.offsets import encode
from groundscope.mitigate.guarding.guard import guard
from groundscope.mitigate.guarding.listening import Proxy
from reference import families

TEXT = "The tower cost 42 million, approx. 5 in all. It was completed in 1887! Bees made it.\n\nDr. Who said so, twice."


class Fed:
    """Stands where the model reads, and keeps what it is fed."""

    signals = ()
    ids: tuple[int, ...] = ()

    def __init__(self, *_):
        self.ids = []

    def feed(self, ids):
        self.ids += ids[0]

    def roll_back(self, count):
        del self.ids[len(self.ids) - count :]


def fed_by_pieces(lm, kind, pieces):
    """What a proxy reads of a text, after each piece, and the text's own tokens."""
    tokenizer = zoo.ZOO[kind]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("groundscope.mitigate.guarding.listening.OnlineTrace", Fed)
        proxy = Proxy(gs.LanguageModel(lm.model, tokenizer), None, ())
    counts = []
    for piece in pieces:
        proxy.hear(piece)
        proxy.read()
        counts.append(len(proxy._online.ids))
    proxy.finish()
    text = "".join(pieces)
    ids, offsets = encode(tokenizer, text, [(0, len(text))])
    np.testing.assert_array_equal(proxy._offsets, offsets)
    return counts, proxy._online.ids, ids


LONG = "東京は日本の首都です。" * 40


@pytest.mark.parametrize("kind", sorted(zoo.ZOO))
@pytest.mark.parametrize(
    "text", [TEXT, "naïve café: 東京タワー 🎉👩‍👩‍👧 ok  , fine\n then", LONG, " <|im_end|> </s> it's a b"]
)
def test_tokens_are_those_of_the_whole_text(tiny, kind, text):
    counts, got, want = fed_by_pieces(tiny, kind, list(text))
    assert got == want and counts[-1] > 0
    assert counts == sorted(counts)  # none had to be taken back


@given(
    st.sampled_from(sorted(zoo.ZOO)),
    st.lists(st.text("ab .,\n'1é東\u0301🎉<", max_size=6), max_size=12),
)
@settings(max_examples=60, deadline=None)
def test_whatever_comes_is_read_as_the_tokens_of_the_whole(tiny, kind, pieces):
    try:
        _, got, want = fed_by_pieces(tiny, kind, pieces)
    except LayoutError:
        return  # the whole text cannot be located in its tokens
    assert got == want


@pytest.mark.parametrize(("family", "again"), [("mistral", True), ("llama", False)])
def test_tokens_that_change_are_taken_back(tiny_tokenizer, family, again):
    lm = gs.LanguageModel(families.build(family), tiny_tokenizer)
    prompt = {"prompt_ids": list(range(5, 60)), "passages": [(3, 12)], "header": (50, 55)}
    proxy = Proxy(lm, gs.Layout.from_ids(response_ids=[], **prompt), ["token_entropy"])
    offsets = np.array([[0, 1], [1, 2], [2, 3]])
    proxy._take([9, 8, 7], offsets)
    online = proxy._online
    proxy._take([9, 6, 5], offsets)
    assert (proxy._online is not online) == again  # a window that has moved on is no way back
    want = lm.trace(gs.Layout.from_ids(response_ids=[9, 6, 5], **prompt), ["token_entropy"])
    np.testing.assert_allclose(proxy._online.trace(0)["token_entropy"], want["token_entropy"], rtol=1e-4)


def test_every_token_is_read_once(make_tiny):
    lm = make_tiny()
    scope = gs.Scope(lm, "entropy", threshold=4.0)
    stream = guard(list(TEXT), scope, "When was it completed?", ("The tower was completed in 1889.",), threshold=1e9)
    widths = []
    handle = lm.anatomy.decoder.register_forward_pre_hook(
        lambda _m, _a, kwargs: widths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    events = list(stream)
    handle.remove()
    assert sum(widths) == len(events[-1].verdict.tokens) and max(widths) < 12
