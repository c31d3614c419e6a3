"""The fast path equals the naive float64 reference on every family, padded on either side, in one batch."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch

import groundscope as gs
import reference
from groundscope.errors import UnsupportedModelError
from groundscope.trace.signals import SIGNALS
from reference import families
from reference.model_pass import OnlyFloat64

ALL = list(SIGNALS)
SUPPORTED = [name for name, family in families.FAMILIES.items() if not family.refused]
REFUSED = [name for name, family in families.FAMILIES.items() if family.refused]
# In float32 the model's own rounding limits agreement, in float64 only the float32 that traces are stored in.
TOLERANCE = {torch.float64: (1e-5, 1e-6), torch.float32: (2e-3, 5e-5)}
# Families whose own output changes with padding on the left, so that nothing can be compared; the engine pads right.
LEFT_PADDING_CHANGES_THE_MODEL = {
    "llama4_text": "transformers scales its queries by their place in the padded sequence, not by their position"
}


def layouts_of(cases):
    return [
        gs.Layout.from_ids(
            case.prompt_ids,
            case.response_ids,
            passages=case.passages,
            header=case.header,
            contrast_prompt_ids=case.contrast_prompt_ids,
        )
        for case in cases
    ]


@pytest.fixture(scope="module", params=SUPPORTED)
def expected(request):
    rng = np.random.default_rng(11)
    cases = [
        reference.random_case(rng, reference.VOCAB, n_passages=n, header_length=h) for n, h in ((1, 3), (3, 0), (2, 4))
    ]
    cases.append(reference.random_case(rng, reference.VOCAB, 2, passage_length=(18, 24), response_length=(9, 12)))
    model = families.build(request.param)
    return request.param, model, cases, [reference.run(model, *case, family=request.param) for case in cases]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("side", ["right", "left"])
def test_every_signal_equals_the_reference(expected, dtype, side):
    name, model, cases, references = expected
    if side == "left" and name in LEFT_PADDING_CHANGES_THE_MODEL:
        pytest.skip(LEFT_PADDING_CHANGES_THE_MODEL[name])
    lm = gs.LanguageModel(model.to(dtype))
    # Some families compute norms, angles or routing in float32 whatever their weights are; the reference does not.
    with OnlyFloat64() if dtype == torch.float64 else contextlib.nullcontext():
        traces = lm.trace(layouts_of(cases), ALL, padding_side=side)
    rtol, atol = TOLERANCE[dtype]
    for trace, want in zip(traces, references, strict=True):
        for signal in ALL:
            got = trace[signal]
            assert got.dtype == np.float32, signal
            assert got.shape == want[signal].shape, signal
            decided = np.ones(got.shape, dtype=bool)
            if signal in ("external_context_score", "chunk_context_score"):
                # Which token is the last of the top tenth, or which chunk comes first, is arbitrary in a tie.
                decided = want[f"{signal}_gap"] > (1e-12 if dtype == torch.float64 else 1e-5)
                assert decided.mean() > 0.5 or families.FAMILIES[name].sliding_layers
            np.testing.assert_allclose(
                got[decided], want[signal][decided], rtol=rtol, atol=atol, err_msg=f"{name} {signal} {side} {dtype}"
            )


def test_one_by_one_equals_batch(expected):
    _, model, cases, _ = expected
    lm = gs.LanguageModel(model.to(torch.float64))
    together = lm.trace(layouts_of(cases), ALL)
    for alone, trace in zip(
        (lm.trace(layout, ALL, batch_size=1) for layout in layouts_of(cases)), together, strict=True
    ):
        for signal in ALL:
            np.testing.assert_allclose(alone[signal], trace[signal], rtol=1e-6, atol=1e-7, err_msg=signal)


def test_layers_without_attention_have_no_features(expected):
    name, model, cases, _ = expected
    lm = gs.LanguageModel(model)
    trace = lm.trace(layouts_of(cases)[0], ["lookback_ratio"])
    declared = families.FAMILIES[name].attention_layers
    layers = tuple(range(len(lm.anatomy.layers))) if declared is None else tuple(declared)
    assert trace.attention_layers == layers
    assert trace["lookback_ratio"].shape[1] == len(layers)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_families_say_why_and_still_yield_their_output(name):
    model = families.build(name)
    lm = gs.LanguageModel(model)
    case = reference.random_case(np.random.default_rng(3), reference.VOCAB)
    (layout,) = layouts_of([case])
    with pytest.raises(UnsupportedModelError, match="cannot yield attention signals: none of its layers calls"):
        lm.trace(layout, ["lookback_ratio"])
    trace = lm.trace(layout, ["token_logprob", "mmd"])
    ids = torch.tensor([[*case.prompt_ids, *case.response_ids]])
    with torch.inference_mode():
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0].double()
    first = len(case.prompt_ids) - 1
    want = logits.log_softmax(-1)[first:-1].gather(-1, torch.tensor(case.response_ids)[:, None]).squeeze(-1)
    np.testing.assert_allclose(trace["token_logprob"], want.numpy(), rtol=1e-4, atol=1e-4)


def test_at_least_thirty_families_are_covered():
    assert len({families.FAMILIES[name].model_type for name in SUPPORTED}) >= 30
