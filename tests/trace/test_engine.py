"""Planning of passes, batches, padding, and what cannot be read."""

from __future__ import annotations

import math
import re
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_layouts import assert_same, layout_of, some_cases, some_layouts

import groundscope as gs
from groundscope.errors import (
    ContextTooLongError,
    InputError,
    LayoutError,
    NonFiniteError,
    PrerequisiteError,
    UnknownNameError,
)
from groundscope.trace.engine import trace_each
from groundscope.trace.signals import SIGNALS
from reference import VOCAB, families

ALL = list(SIGNALS)
ONE_PASS = [name for name, spec in SIGNALS.items() if spec.source != "contrast"]
POISON = 60  # a token that only the tests below use


@pytest.fixture(scope="module")
def lm():
    return gs.LanguageModel(families.build("llama"), name="tiny-llama")


@contextmanager
def counted(lm):
    """Shapes of the (batch, position) ids of every pass through the decoder."""
    shapes = []
    handle = lm.anatomy.decoder.register_forward_pre_hook(
        lambda _m, _a, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    try:
        yield shapes
    finally:
        handle.remove()


@pytest.mark.parametrize(
    ("signals", "passes"),
    [
        (["passage_percentage"], 0),
        (["lookback_ratio"], 1),
        (["lens_entropy"], 1),
        (["token_logprob"], 1),
        (ONE_PASS, 1),
        (["mmd"], 2),
        (ALL, 2),
    ],
)
def test_fewest_passes_for_the_union_of_signals(lm, signals, passes):
    (layout,) = some_layouts(1)
    with counted(lm) as shapes:
        trace = lm.trace(layout, signals)
    assert sum(rows for rows, _ in shapes) == passes
    assert list(trace) == signals


def test_one_pass_per_random_document_and_their_mean(lm):
    (case,) = some_cases(1)
    third = [*case.prompt_ids[:3], *case.prompt_ids[5:]]
    both = layout_of(case, contrast_prompt_ids=[case.contrast_prompt_ids, third])
    with counted(lm) as shapes:
        trace = lm.trace(both, ALL)
    assert sum(rows for rows, _ in shapes) == 3
    singles = [lm.trace(layout_of(case, contrast_prompt_ids=ids), ALL) for ids in (case.contrast_prompt_ids, third)]
    for name in ALL:
        want = (singles[0][name] + singles[1][name]) / 2
        np.testing.assert_allclose(trace[name], want, rtol=1e-4, atol=1e-6, err_msg=name)
    assert np.abs(singles[0]["mmd"] - singles[1]["mmd"]).max() > 1e-4


def test_examples_share_passes(lm):
    with counted(lm) as shapes:
        lm.trace(some_layouts(5), ALL, batch_size=4)
    assert sum(rows for rows, _ in shapes) == 10
    assert len(shapes) == 3 and max(rows for rows, _ in shapes) == 4
    widths = [width for _, width in shapes]
    assert widths == sorted(widths, reverse=True)  # the longest first


def test_long_sequences_are_not_batched_beyond_what_pays(lm, monkeypatch):
    from groundscope.trace import engine

    monkeypatch.setattr(engine, "_CPU_TOKENS", 100)
    with counted(lm) as shapes:
        lm.trace(some_layouts(6), ["token_logprob"], batch_size=8)
    assert all(rows == 1 or rows * width <= 100 for rows, width in shapes)
    assert sum(rows for rows, _ in shapes) == 6 and len(shapes) > 1


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("pads", [0, 1, 2, 3])
def test_padding_changes_nothing(lm, side, pads):
    case, longer = some_cases(1, seed=1)[0], some_cases(1, seed=1)[0]
    longer = layout_of(longer, response_ids=[*longer.response_ids, *range(5, 5 + pads)])
    alone = lm.trace(layout_of(case), ALL)
    beside, _ = lm.trace([layout_of(case), longer], ALL, padding_side=side)
    assert_same(beside, alone)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 5), st.sampled_from(["right", "left"]))
def test_batch_equals_single_in_order_and_in_range(lm, seed, count, batch_size, side):
    layouts = some_layouts(count, seed)
    together = lm.trace(layouts, ALL, batch_size=batch_size, padding_side=side)
    for layout, trace in zip(layouts, together, strict=True):
        assert trace.layout is layout
        assert_same(trace, lm.trace(layout, ALL))
        _check_ranges(trace)


def _check_ranges(trace: gs.Trace) -> None:
    shares = (0, 1)
    bounds = {
        "lookback_ratio": shares,
        "lookback_ratio_passages": shares,
        "aggtruth_sum": shares,
        "passage_attention": shares,
        "passage_percentage": shares,
        "aggtruth_cosine": (-1, 1),
        "external_context_score": (-1, 1),
        "chunk_context_score": (-1, 1),
        "response_chunk": (0, 0),
        "aggtruth_entropy": (0, math.log2(trace.layout.passage_tokens + 1)),
        "aggtruth_js": (0, math.sqrt(math.log(2))),
        "parametric_knowledge_score": (0, math.log(2)),
        "lens_entropy": (0, math.log(VOCAB)),
        "token_entropy": (0, math.log(VOCAB)),
        "information_processing_rate": (0, math.log(VOCAB)),
        "information_processing_rate_calibrated": (0, math.log(VOCAB)),
        "mmd": (0, 2),
        "token_logprob": (-math.inf, 0),
        "token_logprob_contrast": (-math.inf, 0),
        "token_energy": (-math.inf, math.inf),
    }
    assert set(bounds) == set(SIGNALS)
    for name, (low, high) in bounds.items():
        values = trace[name]
        assert values.dtype == np.float32 and np.isfinite(values).all(), name
        if values.size == 0:
            assert name == "passage_attention" and not trace.layout.passages
            continue
        assert values.min() >= low - 1e-5 and values.max() <= high + 1e-5, name


@pytest.mark.parametrize("own", ["sdpa", "eager"])
def test_the_models_own_attention_does_not_matter(lm, own):
    model = families.build("llama")
    model.set_attn_implementation(own)
    for got, want in zip(
        gs.LanguageModel(model).trace(some_layouts(3), ALL), lm.trace(some_layouts(3), ALL), strict=True
    ):
        assert_same(got, want)
    assert model.config._attn_implementation == own


def test_context_of_five_tokens_has_an_external_context_score(lm):
    layout = gs.Layout.from_ids(range(1, 12), [20, 21], passages=[(2, 7)], header=(9, 11))
    score = lm.trace(layout, ["external_context_score"])["external_context_score"]
    assert np.isfinite(score).all() and (np.abs(score) > 1e-6).all()


@pytest.mark.parametrize("passages", [[], [(4, 4)], [(2, 2), (3, 6)]])
def test_no_or_empty_passages_give_finite_signals(lm, passages):
    layout = gs.Layout.from_ids(range(1, 12), [20, 21], passages=passages, header=(9, 11), contrast_prompt_ids=[1, 2])
    trace = lm.trace(layout, ALL)
    _check_ranges(trace)
    assert trace["passage_attention"].shape == (2, len(passages))


@pytest.mark.parametrize("prompt", [[5], [1, 5]])
def test_a_prompt_of_one_token_and_no_header(lm, prompt):
    layout = gs.Layout.from_ids(prompt, [7], contrast_prompt_ids=[[9]])
    trace = lm.trace(layout, ALL)
    _check_ranges(trace)
    assert (trace["lookback_ratio"] == 1).all()  # nothing new to look at yet


def test_first_and_last_token_have_every_signal(lm):
    (case,) = some_cases(1)
    trace = lm.trace(layout_of(case, response_ids=case.response_ids[:1]), ALL)
    _check_ranges(trace)
    assert all(len(values) == 1 for values in trace.values())
    assert trace["aggtruth_sum"].min() > 0


def test_wrong_requests_are_refused_before_anything_is_read(lm):
    layouts = some_layouts(1)
    with counted(lm) as shapes:
        with pytest.raises(UnknownNameError, match="Did you mean 'lookback_ratio'"):
            lm.trace(layouts, ["lookback_ratios"])
        with pytest.raises(InputError, match=r"write \['mmd'\]"):
            lm.trace(layouts, "mmd")
        with pytest.raises(InputError, match="At least one signal"):
            lm.trace(layouts, [])
        with pytest.raises(InputError, match="'batch_size' parameter of trace must be at least 1"):
            lm.trace(layouts, ["mmd"], batch_size=0)
        with pytest.raises(InputError, match="'padding_side' parameter of trace must be one of 'right', 'left'"):
            lm.trace(layouts, ["mmd"], padding_side="middle")
    assert not shapes
    assert lm.trace([], ["mmd"]) == []


def test_each_example_that_cannot_be_read_says_why_and_harms_no_other(lm):
    good, other = some_layouts(2)
    bad = [
        (gs.Layout.from_ids([1, 2], []), LayoutError, "empty response"),
        (gs.Layout.from_ids([1, 2], [3]), LayoutError, "compare with a random document"),
        (
            gs.Layout.from_ids([1, VOCAB], [3], contrast_prompt_ids=[1]),
            LayoutError,
            f"below the model's vocabulary of {VOCAB}",
        ),
        (gs.Layout.from_ids([1], [3], contrast_prompt_ids=[VOCAB + 7]), LayoutError, f"Got {VOCAB + 7} instead"),
        (
            gs.Layout.from_ids([1] * 250, [3] * 7, contrast_prompt_ids=[1]),
            ContextTooLongError,
            "250 tokens.*most 256",
        ),
        (gs.Layout.from_ids([1], [3] * 7, contrast_prompt_ids=[1] * 250), ContextTooLongError, "at most 256"),
    ]
    results = trace_each(lm, [good, *(layout for layout, *_ in bad), other], ["token_logprob", "mmd"])
    for result, (layout, kind, message) in zip(results[1:-1], bad, strict=True):
        assert isinstance(result, kind)
        with pytest.raises(kind, match=message):
            lm.trace(layout, ["token_logprob", "mmd"])
    for result, layout in ((results[0], good), (results[-1], other)):
        assert_same(result, lm.trace(layout, ["token_logprob", "mmd"]))
    exactly = gs.Layout.from_ids([1] * 249, [3] * 7)
    assert lm.trace(exactly, ["token_logprob"]).tokens == 7


@pytest.fixture(scope="module")
def poisoned():
    """A model in which one word's embedding is NaN, as after a broken conversion."""
    model = families.build("llama")
    assert not model.config.tie_word_embeddings
    with torch.no_grad():
        model.model.embed_tokens.weight[POISON] = float("nan")
    return gs.LanguageModel(model, name="broken-llama")


@pytest.mark.parametrize("name", [name for name, spec in SIGNALS.items() if spec.source not in ("layout", "contrast")])
@pytest.mark.parametrize("side", ["right", "left"])
def test_nan_is_an_error_that_names_signal_and_token_and_spares_the_others(lm, poisoned, name, side):
    good = [gs.Layout.from_ids(range(1, 12 + n), [20, 21, 22], passages=[(2, 7)], header=(9, 11 + n)) for n in (0, 4)]
    bad = gs.Layout.from_ids(range(1, 12), [20, POISON, 22, 23], passages=[(2, 7)], header=(9, 11))
    first, error, last = trace_each(poisoned, [good[0], bad, good[1]], [name], padding_side=side)
    for trace, layout in ((first, good[0]), (last, good[1])):
        assert_same(trace, lm.trace(layout, [name]))
    assert isinstance(error, NonFiniteError)
    # Which token comes first depends on the kernel: a value that is NaN may reach rows that give it no weight.
    message = f"broken-llama produced NaN or infinity: signal {name!r}, response token [0-2]\\. Check the weights"
    assert re.match(message, str(error))


def test_nan_embeddings_are_an_error_for_mmd(poisoned):
    (error,) = trace_each(poisoned, some_layouts(1), ["mmd"])
    assert isinstance(error, NonFiniteError) and "'mmd'" in str(error)


def test_out_of_memory_halves_the_batch_and_fails_only_what_does_not_fit_alone(lm):
    layouts = some_layouts(5, seed=4)
    want = lm.trace(layouts, ALL)
    lengths = [layout.prompt_length + layout.response_length for layout in layouts]
    contrasts = [len(layout.contrast_prompt_ids[0]) + layout.response_length for layout in layouts]
    worst = max(range(5), key=lambda i: max(lengths[i], contrasts[i]))
    limit = max(max(lengths[i], contrasts[i]) for i in range(5) if i != worst)

    def run_out(_module, _args, kwargs):
        rows, width = kwargs["input_ids"].shape
        if rows > 2 or width > limit:
            raise torch.OutOfMemoryError("device full")

    # A CPU does not run out in a test; the error is the one that a GPU raises.
    handle = lm.anatomy.decoder.register_forward_pre_hook(run_out, with_kwargs=True)
    try:
        results = trace_each(lm, layouts, ALL)
    finally:
        handle.remove()
    for i, result in enumerate(results):
        if i == worst:
            assert isinstance(result, PrerequisiteError) and "ran out of memory on" in str(result)
        else:
            assert_same(result, want[i])


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "cohere", "granite", "opt"])
def test_the_last_layers_lens_is_the_models_own_output(name):
    lm = gs.LanguageModel(families.build(name))
    for trace in lm.trace(some_layouts(2), ["lens_entropy", "token_entropy"]):
        np.testing.assert_allclose(trace["lens_entropy"][:, -1], trace["token_entropy"], rtol=1e-5, atol=1e-6)
        assert np.abs(trace["lens_entropy"][:, -2] - trace["token_entropy"]).max() > 1e-3
