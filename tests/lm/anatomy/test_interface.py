"""The attention tap: equal output, equal weights, nothing left behind, nobody else disturbed."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from transformers.cache_utils import DynamicCache

from groundscope.lm.anatomy.interface import (
    IMPLEMENTATION,
    AttentionCall,
    AttentionTap,
    attention_logits,
    current_observer,
    hide,
    log_total,
    observing,
    softmax,
)
from reference import WINDOW, families

# With grouped heads, windows, a soft-cap, sinks, and scores scaled otherwise than by the head size.
FAMILIES = ("llama", "mistral", "gemma2", "gemma3_text", "gpt_oss", "gpt2", "granite", "qwen3")


class Weights:
    """Recomputes every row of every layer, as the collectors do for the response's rows."""

    def __init__(self) -> None:
        self.layers: list[torch.Tensor] = []
        self.masks: list[torch.Tensor | None] = []

    def attention(self, call: AttentionCall) -> None:
        rows, keys = slice(0, call.query.shape[2]), slice(0, call.key.shape[2])
        batch = [
            softmax(hide(attention_logits(call, b, rows, keys), call, b, rows, keys), call.sinks)
            for b in range(call.query.shape[0])
        ]
        self.layers.append(torch.stack(batch))
        self.masks.append(call.mask)


def tapped(model, **inputs):
    """Output of a pass with the tap open, and what an observer saw."""
    seen = Weights()
    with torch.inference_mode(), AttentionTap(model).open(), observing(seen):
        return model(**inputs), seen


def eager(name, **inputs):
    """The same model as :func:`families.build` makes, with its own eager attention.

    In float32: the library's eager attention turns the lowest float64 into -inf, and wholly padded rows into NaN.
    """
    model = families.build(name)
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        return model(**inputs, output_attentions=True)


def ids_of(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(3, 101, size=shape))


def switches(model):
    """Everything that the tap may touch."""
    return [(m.config._attn_implementation, m.config) for m in model.modules() if hasattr(m, "config")], [
        m.training for m in model.modules()
    ]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("pads", [0, 3])
def test_output_and_weights_equal_the_models_own_eager_ones(name, pads):
    ids = ids_of(2, 20)
    mask = torch.ones_like(ids)
    mask[1, :pads] = 0
    inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
    want = eager(name, **inputs)
    got, seen = tapped(families.build(name), **inputs)
    real = mask.bool()
    torch.testing.assert_close(got.logits[real], want.logits[real], rtol=1e-4, atol=2e-5)
    assert torch.isfinite(got.logits).all()
    assert len(seen.layers) == len(want.attentions)
    for layer, own in zip(seen.layers, want.attentions, strict=True):
        for example in range(2):
            rows = real[example]
            torch.testing.assert_close(layer[example][:, rows], own[example][:, rows], rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("name", ["llama", "mistral", "gpt_oss", "gemma2"])
def test_a_hole_in_the_mask_hides_its_keys(name):
    ids = ids_of(1, 16)
    mask = torch.ones_like(ids)
    mask[0, 5:8] = 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    want = eager(name, **inputs)
    got, seen = tapped(families.build(name), **inputs)
    real = mask.bool()
    torch.testing.assert_close(got.logits[real], want.logits[real], rtol=1e-4, atol=2e-5)
    for layer in seen.layers:
        assert layer[0][:, real[0]][..., 5:8].max() == 0


@pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated")
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "gpt_oss", "qwen3"])
def test_a_cached_decoding_step_sees_the_row_of_the_whole_pass(name):
    ids = ids_of(1, 15)
    model = families.build(name, dtype=torch.float64)
    whole, seen_whole = tapped(model, input_ids=ids, use_cache=False)
    cache = DynamicCache(config=model.config)
    for stop in (12, 13, 14, 15):
        step = ids[:, cache.get_seq_length() : stop]
        out, seen = tapped(model, input_ids=step, past_key_values=cache, use_cache=True)
    torch.testing.assert_close(out.logits[:, -1], whole.logits[:, -1], rtol=1e-5, atol=1e-6)
    for step_row, full in zip(seen.layers, seen_whole.layers, strict=True):
        last = full[..., -1, :]
        # A layer with a window keeps no more keys than it can see.
        torch.testing.assert_close(step_row[..., -1, :], last[..., -step_row.shape[-1] :], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("own", ["sdpa", "eager"])
def test_padding_and_window_are_not_lost_whatever_the_models_own_attention(own):
    ids = ids_of(1, 20)
    for name, pads in (("llama", 3), ("mistral", 0)):
        model = families.build(name)
        model.set_attn_implementation(own)
        mask = torch.ones_like(ids)
        mask[0, :pads] = 0
        inputs = {"input_ids": ids, "attention_mask": mask}
        with torch.inference_mode():
            want = model(**inputs).logits[:, pads:]
            unmasked = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[:, pads:]
        got, seen = tapped(model, **inputs)
        torch.testing.assert_close(got.logits[:, pads:], want, rtol=1e-4, atol=1e-5)
        assert model.config._attn_implementation == own
        if pads:
            assert (unmasked - want).abs().max() > 1e-2  # so the mask matters
        else:
            assert seen.layers[0][0, :, -1, : 20 - WINDOW].max() == 0
            assert seen.layers[0][0, :, -1, 20 - WINDOW :].min() > 0


def test_a_sink_takes_its_share_and_a_hidden_key_none():
    logits = torch.tensor([[[0.0, 1.0, 2.0, -1e30]]])
    weights = softmax(logits, torch.tensor([1.5]))
    own = torch.tensor([0.0, 1.0, 2.0])
    total = own.exp().sum() + torch.tensor(1.5).exp()
    torch.testing.assert_close(weights[0, 0], torch.cat([own.exp() / total, torch.zeros(1)]))
    torch.testing.assert_close(log_total(logits, weights)[0, 0], total.log())
    assert weights.sum() < 1
    large = softmax(logits, torch.tensor([1e4]))
    assert torch.isfinite(large).all() and large.max() == 0
    assert torch.isfinite(log_total(logits, large)).all()


def test_a_wholly_hidden_row_is_finite():
    for mask in (torch.zeros(1, 1, 2, 4, dtype=torch.bool), torch.full((1, 1, 2, 4), float("-inf"))):
        generator = torch.Generator().manual_seed(0)
        query, key = torch.randn(1, 2, 2, 4, generator=generator), torch.randn(1, 2, 4, 4, generator=generator)
        call = AttentionCall(torch.nn.Identity(), query.half(), key.half(), mask, 1.0, None, None)
        rows, keys = slice(0, 2), slice(0, 4)
        logits = hide(attention_logits(call, 0, rows, keys), call, 0, rows, keys)
        weights = softmax(logits, None)
        assert weights.dtype == torch.float32
        assert torch.isfinite(weights).all() and torch.isfinite(log_total(logits, weights)).all()


def test_everything_is_put_back():
    model = families.build("gpt2").train()
    model.transformer.h[1].eval()
    before = switches(model)
    with AttentionTap(model).open():
        assert model.config._attn_implementation == IMPLEMENTATION
        assert not any(m.training for m in model.modules())
    assert switches(model) == before
    with AttentionTap(model).open(attention=False):
        assert model.config._attn_implementation == before[0][0][0]
        assert not model.training
    assert switches(model) == before


def test_everything_is_put_back_after_an_error_inside_a_layer():
    model = families.build("llama").train()
    before = switches(model)
    handle = model.model.layers[1].mlp.register_forward_hook(lambda *_: (_ for _ in ()).throw(RuntimeError("broken")))
    with pytest.raises(RuntimeError, match="broken"):
        tapped(model, input_ids=ids_of(1, 5))
    handle.remove()
    assert switches(model) == before
    assert current_observer() is None


def test_the_last_one_out_puts_things_back():
    model = families.build("llama")
    tap = AttentionTap(model)
    with tap.open():
        with tap.open():
            pass
        assert model.config._attn_implementation == IMPLEMENTATION
    assert model.config._attn_implementation == "sdpa"


def test_two_taps_on_one_model_leave_in_any_order():
    model = families.build("llama")
    first, second = AttentionTap(model).open(), AttentionTap(model).open()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert model.config._attn_implementation == IMPLEMENTATION
    second.__exit__(None, None, None)
    assert model.config._attn_implementation == "sdpa"


def test_another_model_is_not_touched():
    one, other = families.build("llama"), families.build("llama", seed=1)
    ids = ids_of(1, 9)
    with torch.inference_mode():
        want = other(input_ids=ids).logits
    seen = Weights()
    with torch.inference_mode(), AttentionTap(one).open(), observing(seen):
        assert other.config._attn_implementation == "sdpa"
        torch.testing.assert_close(other(input_ids=ids).logits, want, rtol=0, atol=0)
        assert not seen.layers
        one(input_ids=ids)
        assert len(seen.layers) == 3


def test_an_observer_sees_its_own_thread_only():
    model = families.build("llama")
    tap = AttentionTap(model)
    mine = Weights()
    others: list[object] = []

    def elsewhere() -> None:
        others.append(current_observer())
        with torch.inference_mode(), tap.open():
            model(input_ids=ids_of(1, 6))

    with tap.open(), observing(mine):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert others == [None] and not mine.layers
