"""hidden_state_<layer>: one layer's residual stream at the predicting rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_layouts import assert_same, some_cases, some_layouts

import groundscope as gs
from groundscope.errors import InputError, NonFiniteError, UnknownNameError, UnsupportedModelError
from groundscope.trace.engine import trace_each
from groundscope.trace.signals import SIGNALS, check_signals, hidden_state, layer_of, sources_of, spec_of
from reference import FAMILIES, SUPPORTED, families
from reference.model_pass import in_float64, read


@pytest.fixture(scope="module")
def lm():
    return gs.LanguageModel(families.build("llama"), name="tiny-llama")


@pytest.mark.parametrize("family", SUPPORTED)
def test_it_is_the_naive_pass_at_the_predicting_rows(family):
    (case,) = some_cases(1, seed=5)
    (layout,) = some_layouts(1, seed=5)
    model = families.build(family)
    lm = gs.LanguageModel(model, name=family)
    depth = len(lm.anatomy.layers)
    names = [hidden_state(layer) for layer in range(depth)]
    want = read(in_float64(model), FAMILIES[family], [*case.prompt_ids, *case.response_ids]).post
    trace = lm.trace(layout, names)
    rows = slice(layout.prompt_length - 1, layout.prompt_length - 1 + layout.response_length)
    for layer, name in enumerate(names):
        assert trace[name].dtype == np.float32 and trace[name].shape == want[layer, rows].shape
        np.testing.assert_allclose(trace[name], want[layer, rows], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("side", ["left", "right"])
def test_batches_and_padding_change_nothing(lm, side):
    layouts = some_layouts(4, seed=6)
    names = ["hidden_state_0", "hidden_state_2"]
    for layout, trace in zip(layouts, lm.trace(layouts, names, padding_side=side), strict=True):
        assert_same(trace, lm.trace(layout, names))


def test_beside_other_signals_nothing_changes(lm):
    (layout,) = some_layouts(1)
    trace = lm.trace(layout, [*SIGNALS, "hidden_state_1"])
    assert_same(
        gs.Trace(layout, {name: trace[name] for name in SIGNALS}, trace.model, trace.attention_layers),
        lm.trace(layout, list(SIGNALS)),
    )
    np.testing.assert_allclose(
        trace["hidden_state_1"], lm.trace(layout, ["hidden_state_1"])["hidden_state_1"], 1e-3, 1e-4
    )


def test_half_precision_models_yield_float32():
    lm = gs.LanguageModel(families.build("llama").to(torch.bfloat16))
    trace = lm.trace(some_layouts(1)[0], ["hidden_state_1"])
    assert trace["hidden_state_1"].dtype == np.float32 and np.isfinite(trace["hidden_state_1"]).all()


def test_no_hook_is_left_behind(lm):
    lm.trace(some_layouts(2), ["hidden_state_0", "hidden_state_2"])
    assert all(not layer._forward_hooks for layer in lm.anatomy.layers)


def test_a_layer_that_the_model_lacks_is_refused_before_any_pass(lm):
    with pytest.raises(UnsupportedModelError, match=r"tiny-llama has the layers 0 to 2\. Got 'hidden_state_3'"):
        trace_each(lm, some_layouts(1), ["token_logprob", "hidden_state_3"])


@pytest.mark.parametrize(
    "name", ["hidden_state_", "hidden_state_-1", "hidden_state_01", "hidden_state_1 ", "hidden_state_٣"]
)
def test_names_are_exact(name):
    with pytest.raises(UnknownNameError, match=r"hidden_state_<layer>"):
        check_signals([name])
    assert layer_of(name) is None


def test_the_name_tells_what_it_is(lm):
    assert hidden_state(12) == "hidden_state_12" and layer_of("hidden_state_12") == 12
    spec = spec_of("hidden_state_12")
    assert (spec.name, spec.axes, spec.source) == ("hidden_state_12", "token x channel", "states")
    assert sources_of(["hidden_state_0", "token_logprob"]) == {"states", "output"}
    assert check_signals(["hidden_state_0", "hidden_state_0"]) == ("hidden_state_0",)
    with pytest.raises(InputError, match="'hidden_state_0' was not requested"):
        lm.trace(some_layouts(1)[0], ["token_logprob"])["hidden_state_0"]


def test_nan_is_an_error_that_names_the_layer():
    model = families.build("llama")
    with torch.no_grad():
        model.model.embed_tokens.weight[20] = float("nan")
    bad = gs.Layout.from_ids(range(1, 12), [20, 21, 22])
    (error,) = trace_each(gs.LanguageModel(model, name="broken"), [bad], ["hidden_state_1"])
    assert isinstance(error, NonFiniteError) and "'hidden_state_1'" in str(error)
