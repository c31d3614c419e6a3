"""Answers sampled from a model: the distribution, the ends, the states, the limits."""

from __future__ import annotations

import copy
import threading

import numpy as np
import pytest
import torch

import groundscope as gs
from groundscope.errors import ContextTooLongError, UnsupportedModelError
from groundscope.lm.sampling import Sampling, sample
from reference import SUPPORTED, VOCAB, families


def test_draws_follow_the_softmax_at_the_temperature(tiny):
    prompt = np.arange(5, 25)
    with torch.no_grad():
        logits = tiny.model(torch.from_numpy(prompt)[None]).logits[0, -1].double()
    for temperature in (0.3, 1.0):
        drawn = sample(tiny, prompt, Sampling(3000, temperature, 1, seed=5)).ids
        p = (logits / temperature).softmax(-1).numpy()
        counts = np.zeros(len(p))
        for ids in drawn:
            counts[ids[0] if ids else tiny.tokenizer.eos_token_id] += 1
        frequent = p > 0.01
        errors = np.abs(counts / 3000 - p)[frequent] / np.sqrt(p * (1 - p) / 3000)[frequent]
        assert frequent.sum() >= 5 and errors.max() < 4.5


def test_states_are_the_middle_layers_at_the_last_token(tiny):
    prompt = np.arange(5, 25)
    drawn = sample(tiny, prompt, Sampling(6, 1.0, 5, seed=1))
    assert drawn.states.dtype == np.float32 and len(drawn.ids) == 6
    for ids, state in zip(drawn.ids, drawn.states, strict=True):
        read = torch.tensor([[*prompt, *ids]])
        with torch.no_grad():
            # Three layers: the second one's output.
            want = tiny.model(read, output_hidden_states=True).hidden_states[2][0, -1]
        np.testing.assert_allclose(state, want.numpy(), rtol=1e-3, atol=1e-4)


def test_an_answer_ends_before_its_end_token_or_at_the_limit(make_tiny):
    lm = make_tiny()
    prompt = np.arange(5, 25)
    free = sample(lm, prompt, Sampling(40, 1.0, 8, seed=2))
    assert all(len(ids) <= 8 for ids in free.ids) and any(len(ids) == 8 for ids in free.ids)
    assert all(lm.tokenizer.eos_token_id not in ids for ids in free.ids)
    often = max((ids[0] for ids in free.ids if ids), key=[ids[0] for ids in free.ids if ids].count)
    lm.model.generation_config.eos_token_id = [often]
    ended = sample(lm, prompt, Sampling(40, 1.0, 8, seed=2))
    assert any(ids == () for ids in ended.ids)
    for before, after in zip(free.ids, ended.ids, strict=True):
        cut = before.index(often) if often in before else len(before)
        assert after == before[:cut]
    empty = ended.ids.index(())
    with torch.no_grad():
        want = lm.model(torch.from_numpy(prompt)[None], output_hidden_states=True).hidden_states[2][0, -1]
    np.testing.assert_allclose(ended.states[empty], want.numpy(), rtol=1e-3, atol=1e-4)


def test_the_prompt_is_read_once_for_all_answers(make_tiny):
    lm = make_tiny()
    sample(lm, np.arange(5, 15), Sampling(2, 1.0, 1))  # whether keys can be shared is found out once per model
    read = []
    handle = lm.anatomy.layers[0].register_forward_hook(lambda _m, _a, out: read.append(tuple(out.shape[:2])))
    try:
        drawn = sample(lm, np.arange(5, 25), Sampling(6, 1.0, 3, seed=2))
    finally:
        handle.remove()
    assert max(map(len, drawn.ids)) == 3 and read == [(1, 20), *[(6, 1)] * 3]


def test_the_models_own_generation_settings_do_not_count(make_tiny):
    lm = make_tiny()
    prompt = np.arange(5, 25)
    want = sample(lm, prompt, Sampling(5, 1.0, 6)).ids
    config = lm.model.generation_config
    config.do_sample, config.top_k, config.temperature, config.repetition_penalty = True, 1, 0.01, 1.9
    kept = copy.deepcopy(config.to_dict())
    assert sample(lm, prompt, Sampling(5, 1.0, 6)).ids == want
    assert config.to_dict() == kept


def test_no_hook_is_left_behind_and_other_threads_are_not_watched(make_tiny):
    lm = make_tiny()
    prompt = np.arange(5, 25)
    want = sample(lm, prompt, Sampling(4, 1.0, 8))
    stop = threading.Event()

    def read():
        while not stop.is_set():
            with torch.no_grad():
                lm.model(torch.arange(3, 9)[None])

    thread = threading.Thread(target=read)
    thread.start()
    try:
        got = sample(lm, prompt, Sampling(4, 1.0, 8))
    finally:
        stop.set()
        thread.join()
    assert got.ids == want.ids
    np.testing.assert_allclose(got.states, want.states, rtol=1e-4, atol=1e-5)
    assert not any(layer._forward_hooks for layer in lm.anatomy.layers)


def test_what_does_not_fit_is_refused(make_tiny):
    lm = make_tiny(context=30)
    with pytest.raises(ContextTooLongError, match=r"lower max_new_tokens"):
        sample(lm, np.arange(3, 23), Sampling(2, 1.0, 11))
    assert sample(lm, np.arange(3, 23), Sampling(2, 1.0, 10)).states.shape[0] == 2


def test_a_model_that_cannot_generate_is_refused(make_tiny):
    lm = make_tiny()
    assert "output" not in lm.anatomy.problems  # found while it is whole
    lm.model.__class__ = type("Mute", (type(lm.model),), {"generate": property()})
    with pytest.raises(UnsupportedModelError, match="cannot generate"):
        sample(lm, np.arange(3, 9), Sampling(2, 1.0, 2))


@pytest.mark.slow
@pytest.mark.parametrize("family", SUPPORTED)
def test_every_family_can_be_sampled(family):
    lm = gs.LanguageModel(families.build(family), name=family)
    prompt = np.random.default_rng(0).integers(3, VOCAB, size=12)
    drawn = sample(lm, prompt, Sampling(3, 1.0, 4))
    assert len(drawn.ids) == 3 and np.isfinite(drawn.states).all()
    assert sample(lm, prompt, Sampling(3, 1.0, 4)).ids == drawn.ids
