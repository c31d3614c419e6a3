"""Signals computed while a text grows equal the trace of the finished text, on every family; forks, ways back."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_layouts import layout_of

import groundscope as gs
import reference
from groundscope.errors import ContextTooLongError, InputError, LayoutError, NonFiniteError, UnknownNameError
from groundscope.lm import running
from groundscope.trace.online.online_trace import OnlineTrace, known_when
from groundscope.trace.signals import SIGNALS
from reference import VOCAB, families
from reference.model_pass import OnlyFloat64

NAMES = [name for name in SIGNALS if name not in ("chunk_context_score", "response_chunk")]
NAMES += ["hidden_state_1", "mmd_top100"]
STEPS = (1, 3, 1, 1, 3)
FEW = ("llama", "mistral", "gemma2", "gpt_oss", "qwen2", "gpt2", "lfm2")
# Scales its queries by their place in the padded sequence, so that the model itself says something else.
CHANGED_BY_PADDING = ("llama4_text",)


def some(count, seed=11, tokens=9, **options):
    rng = np.random.default_rng(seed)
    cases = [
        reference.random_case(
            rng, VOCAB, 1 + i % 3, header_length=(3, 0, 4)[i % 3], response_length=(tokens, tokens), **options
        )
        for i in range(count)
    ]
    return [layout_of(case) for case in cases], torch.tensor([case.response_ids for case in cases])


def fed(lm, layouts, ids, signals, steps=STEPS):
    online = OnlineTrace(lm, layouts, signals)
    at = 0
    for count in steps:
        online.feed(ids[:, at : at + count])
        at += count
    return online


def assert_equal(got, want, rtol=1e-5, atol=1e-6):
    assert got.blind_layers == want.blind_layers and got.attention_layers == want.attention_layers
    assert list(got) == list(want)
    np.testing.assert_array_equal(got.layout.response_ids, want.layout.response_ids)
    for name in want:
        assert got[name].shape == want[name].shape and got[name].dtype == np.float32, name
        np.testing.assert_allclose(got[name], want[name], rtol=rtol, atol=atol, err_msg=name)


@pytest.fixture(scope="module")
def lm():
    return gs.LanguageModel(families.build("llama"), name="tiny-llama")


def doubled(name):
    return gs.LanguageModel(families.build(name).to(torch.float64), name=name)


@pytest.mark.parametrize(
    "name", [n if n in FEW else pytest.param(n, marks=pytest.mark.slow) for n in families.SUPPORTED]
)
def test_equal_to_the_trace_of_the_finished_text(name):
    lm = doubled(name)
    layouts, ids = some(3)
    with OnlyFloat64():
        want = lm.trace(layouts, NAMES)
        for batch in ([0], [0, 1, 2]):
            if len(batch) > 1 and name in CHANGED_BY_PADDING:
                continue
            online = fed(lm, [layouts[i] for i in batch], ids[batch], NAMES)
            for sequence, number in enumerate(batch):
                assert_equal(online.trace(sequence), want[number])


@pytest.mark.parametrize("name", ["mistral", "gemma2", "gpt_oss", "qwen2"])
def test_windows_are_shorter_than_these_prompts(name):
    layouts, _ = some(3)
    assert families.FAMILIES[name].sliding_layers
    assert min(layout.prompt_length for layout in layouts) > 2 * reference.WINDOW


@pytest.mark.parametrize(
    "name", [n if n in FEW else pytest.param(n, marks=pytest.mark.slow) for n in families.SUPPORTED]
)
def test_forks_share_a_prefix_and_go_on_independently(name):
    lm = doubled(name)
    (layout,), ids = some(1)
    row = ids[0]
    with OnlyFloat64():
        parent = OnlineTrace(lm, layout, NAMES)
        parent.feed(row[None, :2])
        forked = parent.fork(3)
        forked.feed(torch.stack([row[2:3], row[3:4], row[4:5]]))
        forked.feed(torch.stack([row[2:5], row[3:6], row[4:7]]))
        forked.keep([2, 1])
        again = forked.fork(2, [1])
        again.feed([[5, 6], [7, 8]])
        forked.feed([[9], [10]])
        parent.feed([[11]])
        first = row[:2].tolist()
        assert parent.ids(0) == [*first, 11]
        assert forked.ids(0) == [*first, *row[4:5].tolist(), *row[4:7].tolist(), 9]
        assert again.ids(1) == [*first, *row[3:4].tolist(), *row[3:6].tolist(), 7, 8]
        for trace in (*(forked.trace(i) for i in (0, 1)), *(again.trace(i) for i in (0, 1)), parent.trace(0)):
            assert_equal(trace, lm.trace(trace.layout, NAMES))


def test_candidates_hold_the_prompt_once(lm):
    (layout,), _ = some(1)
    parent = OnlineTrace(lm, layout)
    child = parent.fork(5)
    child.feed([[i] for i in range(5, 10)])
    ours, theirs = (trace._reader.running._cache.layers[0] for trace in (parent, child))
    assert theirs.prefix_keys.data_ptr() == ours.keys.data_ptr()
    assert theirs.keys.shape[0] == 5 and theirs.keys.shape[2] == 1


def test_a_model_that_cannot_share_copies(lm, monkeypatch):
    (layout,), ids = some(1)
    shared = OnlineTrace(lm, layout, NAMES).fork(2)
    monkeypatch.setitem(running._SHARES, lm.model, False)
    copied = OnlineTrace(lm, layout, NAMES).fork(2)
    pair = ids.repeat(2, 1)
    for online in (shared, copied):
        online.feed(pair[:, :4])
    assert not hasattr(copied._reader.running._cache.layers[0], "prefix_keys")
    assert_equal(copied.trace(1), shared.trace(1), rtol=1e-3, atol=1e-4)


def test_sharing_is_refused_where_it_would_change_the_states(monkeypatch):
    lm = gs.LanguageModel(families.build("llama"))
    monkeypatch.setattr(
        "groundscope.lm.anatomy.interface.prefix_of", lambda _key: None
    )  # as attention code that loses it
    assert not running._can_share(lm)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(1, 3))
def test_any_steps_and_any_batch(lm, seed, steps, count):
    layouts, ids = some(count, seed, sum(steps))
    online = fed(lm, layouts, ids, NAMES, steps)
    for sequence, want in enumerate(lm.trace(layouts, NAMES)):
        assert_equal(online.trace(sequence), want, rtol=2e-3, atol=1e-4)


def test_long_pieces_are_read_in_several_passes(lm):
    layouts, ids = some(1, tokens=150)
    assert_equal(fed(lm, layouts, ids, NAMES, (150,)).trace(0), lm.trace(layouts[0], NAMES), rtol=2e-3, atol=1e-4)


def test_several_random_documents():
    lm = doubled("llama")
    rng = np.random.default_rng(2)
    case = reference.random_case(rng, VOCAB, 2)
    other = [*case.prompt_ids[:3], *case.prompt_ids[5:]]
    layout = layout_of(case, contrast_prompt_ids=[case.contrast_prompt_ids, other])
    names = ["mmd", "mmd_top100", "token_logprob_contrast", "token_logprob"]
    with OnlyFloat64():
        online = OnlineTrace(lm, layout, names).fork(2)
        online.feed([case.response_ids] * 2)
        assert_equal(online.trace(1), lm.trace(layout, names))


def test_what_is_known_when(lm):
    (layout,), ids = some(1)
    online = OnlineTrace(lm, layout, NAMES)
    before = {name for name in NAMES if known_when(name) == "before"}
    assert {"lookback_ratio", "external_context_score", "parametric_knowledge_score", "token_entropy"} <= before
    assert known_when("aggtruth_js") == "fed" and known_when("token_logprob") == "chosen"
    assert online.available(0) == before and not online.available(1)
    ahead = dict(online.ahead)
    assert set(ahead) == before - {"passage_percentage"}
    online.feed(ids[:, :1])
    assert online.available(0) == set(NAMES) and online.available(1) == before
    for name, values in ahead.items():
        np.testing.assert_array_equal(values[0].float(), online.trace(0)[name][0])


def test_the_next_token_is_chosen_from_the_models_own_logits(lm):
    (layout,), ids = some(1)
    online = fed(lm, [layout], ids, [], (4,))
    whole = torch.from_numpy(np.concatenate([layout.prompt_ids, ids[0, :4].numpy()]))[None]
    with torch.inference_mode():
        want = lm.model(input_ids=whole).logits[:, -1]
    torch.testing.assert_close(online.logits, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("forked", [False, True])
def test_rolling_back_leaves_no_trace(forked):
    lm = doubled("llama")
    layouts, ids = some(1)
    with OnlyFloat64():
        online = OnlineTrace(lm, layouts, NAMES)
        online.feed(ids[:, :3])
        if forked:
            online = online.fork(2)
        rows = ids.repeat(online.size, 1)
        online.feed(rows[:, 5:8])
        online.roll_back(4)
        logits = online.logits.clone()
        online.feed(rows[:, 2:])
        want = lm.trace(layouts[0], NAMES)
        assert_equal(online.trace(online.size - 1), want)
        online.roll_back(online.tokens)
        assert online.tokens == 0 and online.trace(0).tokens == 0
        online.feed(rows[:, :2])
        torch.testing.assert_close(online.logits, logits)


@pytest.mark.parametrize("name", ["mistral", "qwen3_next"])
def test_rolling_back_is_refused_where_it_is_impossible(name):
    lm = gs.LanguageModel(families.build(name), name=name)
    layouts, ids = some(1)
    online = fed(lm, layouts, ids, ["lookback_ratio"], (4,))
    before = online.logits.clone()
    way_back = online.fork()
    online.feed(ids[:, 4:6])
    with pytest.raises(InputError, match="Fork before reading on"):
        online.roll_back(1)
    torch.testing.assert_close(way_back.logits, before)
    way_back.feed(ids[:, 4:6])
    torch.testing.assert_close(way_back.logits, online.logits)


def test_signals_of_the_finished_text_are_refused_by_name(lm):
    (layout,), _ = some(1)
    for name in ("chunk_context_score", "response_chunk"):
        with pytest.raises(InputError, match=f"{name}.*cannot be had while the text is written"):
            OnlineTrace(lm, layout, ["lookback_ratio", name])
    with pytest.raises(UnknownNameError):
        OnlineTrace(lm, layout, ["lookback"])
    online = OnlineTrace(lm, layout, ["lookback_ratio"])
    with pytest.raises(InputError, match="was not requested"):
        online.values("aggtruth_js")


def test_contrast_signals_need_random_documents(lm):
    layouts, _ = some(2, contrast=False)
    with pytest.raises(LayoutError, match="equally many"):
        OnlineTrace(lm, layouts, ["mmd"])


@pytest.mark.parametrize("ids", [[[5], [6]], [5], [[]], [["a"]], [[5, VOCAB]], [[-1]]])
def test_wrong_tokens_are_refused_and_nothing_is_fed(lm, ids):
    (layout,), _ = some(1)
    online = OnlineTrace(lm, layout, ["lookback_ratio"])
    with pytest.raises(InputError):
        online.feed(ids)
    assert online.tokens == 0 and online._reader.running.length == layout.prompt_length


def test_a_full_context_is_refused_before_anything_is_fed(make_tiny):
    lm = make_tiny(context=40)
    layout = gs.Layout.from_ids(list(range(5, 40)), [])
    online = OnlineTrace(lm, layout)
    online.feed([[5, 6, 7]])
    with pytest.raises(ContextTooLongError, match="at most 40"):
        online.feed([[5, 6, 7]])
    assert online.tokens == 3
    online.feed([[5, 6]])


def test_broken_weights_are_named(make_tiny):
    lm = make_tiny()
    layout = gs.Layout.from_ids(list(range(5, 40)), [], passages=[(3, 20)])
    online = OnlineTrace(lm, layout, ["lookback_ratio"])
    with torch.no_grad():
        lm.model.model.layers[1].self_attn.q_proj.weight[0] = math.nan
    online.feed([[5]])
    with pytest.raises(NonFiniteError, match=r"lookback_ratio.*response token"):
        online.feed([[6]])
        online.trace(0)


class Broken(Exception):
    pass


def fail(*_):
    raise Broken


def test_the_model_is_left_as_it_was(lm):
    def state():
        hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in lm.model.modules()]
        return hooks, lm.model.config._attn_implementation, [m.training for m in lm.model.modules()]

    (layout,), ids = some(1)
    lm.model.train()
    try:
        before = state()
        online = OnlineTrace(lm, layout, NAMES)
        online.feed(ids[:, :2])
        online.fork(2).feed(ids[:, :2].repeat(2, 1))
        assert state() == before
        handle = lm.anatomy.layers[1].register_forward_hook(fail)
        with pytest.raises(Broken):
            online.feed(ids[:, 2:3])
        handle.remove()
        assert state() == before
    finally:
        lm.model.eval()


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen3_next"])
def test_a_step_that_breaks_off_has_not_happened(name):
    lm = doubled(name)
    layouts, ids = some(1)
    with OnlyFloat64():
        online = OnlineTrace(lm, layouts, NAMES)
        online.feed(ids[:, :3])
        for layer, call in ((1, 1), (len(lm.anatomy.layers) - 1, 2)):  # in its own pass, and under the random document
            calls = []

            def fail_at(*_, calls=calls, call=call):
                calls.append(1)
                if len(calls) == call:
                    raise Broken

            handle = lm.anatomy.layers[layer].register_forward_hook(fail_at)
            with pytest.raises(Broken):
                online.feed(ids[:, 5:7])
            handle.remove()
            assert online.tokens == 3
        online.feed(ids[:, 3:])
        assert_equal(online.trace(0), lm.trace(layouts[0], NAMES))
