"""A model that is looked at goes on reading in other threads: neither sees the other."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import pytest
import torch

import groundscope as gs
from groundscope.lm.anatomy.blocks import in_this_thread, inspect_model, watch_input
from groundscope.lm.anatomy.interface import AttentionTap
from groundscope.lm.circuits import head_weights
from reference import VOCAB, families

NAMES = ["llama", "gemma2", "gpt2", "phi", "olmo2"]


@contextmanager
def read_meanwhile(model, layer):
    """Let another thread read in the middle of every pass of this one, and gather what it gets."""
    ids = torch.arange(3, 12)[None] % VOCAB
    own, found = threading.get_ident(), []

    def read():
        with torch.no_grad():
            found.append(model(input_ids=ids).logits)

    def hook(*_):
        if threading.get_ident() == own:
            other = threading.Thread(target=read)
            other.start()
            other.join()

    with torch.no_grad():
        alone = model(input_ids=ids).logits
    handle = layer.register_forward_hook(hook)
    try:
        yield found
    finally:
        handle.remove()
    assert found and all(torch.equal(logits, alone) for logits in found)


@pytest.mark.parametrize("name", NAMES)
def test_the_anatomy(name):
    model = families.build(name)
    want = inspect_model(model, AttentionTap(model))
    with read_meanwhile(model, want.layers[0]):
        found = inspect_model(model, AttentionTap(model))
    assert not found.problems
    assert (found.attention, found.mids, found.heads) == (want.attention, want.mids, want.heads)
    assert found.unembedding == want.unembedding


@pytest.mark.parametrize("name", NAMES)
def test_the_matrices_of_the_heads(name):
    lm = gs.LanguageModel(families.build(name))
    want = head_weights(lm)
    with read_meanwhile(lm.model, lm.anatomy.layers[0]):
        found = head_weights(lm)
    assert list(found) == list(want)
    for layer, weights in found.items():
        torch.testing.assert_close(weights.value, want[layer].value)
        torch.testing.assert_close(weights.output, want[layer].output)


def test_a_hook_for_this_thread_runs_in_no_other():
    model = families.build("llama")
    layer, here, anywhere = model.model.layers[1], [], []
    handles = [watch_input(layer, in_this_thread(here.append)), watch_input(layer, anywhere.append)]
    ids = torch.arange(3, 9)[None]
    other = threading.Thread(target=lambda: model(input_ids=ids))
    other.start()
    other.join()
    assert not here and len(anywhere) == 1
    model(input_ids=ids)
    for handle in handles:
        handle.remove()
    assert len(here) == 1 and len(anywhere) == 2 and here[0].shape[1] == 6
