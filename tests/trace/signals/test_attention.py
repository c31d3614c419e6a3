"""Reductions of attention rows: hand-worked values, ranges, extremes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference.signals
from groundscope.lm.anatomy.interface import AttentionCall
from groundscope.trace.signals.attention import AttentionRows, RowGeometry, aggregate_passages, context_scores

AGGTRUTH = {"aggtruth_sum", "aggtruth_cosine", "aggtruth_entropy", "aggtruth_js"}
HEADS = ("lookback_ratio", "lookback_ratio_passages", *sorted(AGGTRUTH))
# Keys: BOS, p1, p2, p3, q, marker, self.
HAND = torch.tensor(
    [[0.40, 0.10, 0.20, 0.05, 0.05, 0.05, 0.15], [0.10, 0.30, 0.10, 0.20, 0.05, 0.05, 0.20]], dtype=torch.float64
)


def call_with(weights: torch.Tensor, rows: int) -> AttentionCall:
    """A layer whose last query has the given weights (head, key) and whose earlier queries look evenly."""
    heads, keys = weights.shape
    query = torch.zeros(1, heads, rows, keys, dtype=weights.dtype)
    query[0, :, -1] = weights.clamp(min=1e-30).log()
    key = torch.eye(keys, dtype=weights.dtype).expand(1, heads, keys, keys)
    return AttentionCall(torch.nn.Identity(), query, key, None, 1.0, None, None)


def test_lookback_ratio_by_hand():
    # The last query is the predicting row of a token that is not there, so one more row of zeros is added.
    keys = torch.cat([HAND, torch.zeros(2, 1, dtype=HAND.dtype)], dim=-1)
    call = call_with(keys, 8)
    call.query[0, :, 6], call.query[0, :, 7] = call.query[0, :, 7].clone(), 0
    rows = AttentionRows(RowGeometry(0, 0, 7, 1, ((1, 4),), 5), frozenset({"lookback_ratio"}))
    rows.add_layer(call)
    (ratio,) = rows.parts["lookback_ratio"]
    np.testing.assert_allclose(ratio[:, 0], [0.615385, 0.545455], atol=1e-6)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aggtruth_sum", [0.35, 0.60]),
        ("aggtruth_cosine", [0.699854, 0.699854]),
        ("aggtruth_entropy", [1.416642, 1.846439]),
        ("aggtruth_js", [0.148052, 0.127094]),
    ],
)
def test_aggregations_by_hand(name, expected):
    passage = HAND[:, None, 1:4]
    got = aggregate_passages(passage, passage.log(), torch.zeros(passage.shape[:-1]), {name})
    assert set(got) == {name}
    np.testing.assert_allclose(got[name][:, 0], expected, atol=1e-6)


@st.composite
def logits(draw):
    """(head, row, key) logits between flat and near one-hot."""
    heads, rows, keys = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 12))
    scale = draw(st.sampled_from([0.0, 1e-3, 1.0, 30.0, 1e4]))
    values = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).normal(size=(heads, rows, keys))
    return torch.from_numpy(values * scale).float()


@given(logits(), st.integers(0, 12))
def test_aggregations_stay_in_range_and_equal_the_definitions(values, outside):
    logs = values.log_softmax(-1)[..., outside:]  # the first keys are no passage
    got = aggregate_passages(logs.exp(), logs, torch.zeros(logs.shape[:-1]), AGGTRUTH)
    count = logs.shape[-1]
    bounds = {
        "aggtruth_sum": (0, 1),
        "aggtruth_cosine": (-1, 1),
        "aggtruth_entropy": (0, math.log2(count + 1)),
        "aggtruth_js": (0, math.sqrt(math.log(2))),
    }
    for name, (low, high) in bounds.items():
        assert torch.isfinite(got[name]).all()
        assert got[name].min() >= low - 1e-6 and got[name].max() <= high + 1e-5, name
        for row in range(values.shape[1]):
            if count and name == "aggtruth_cosine" and float(logs[:, row].amax(-1).min()) < math.log(1e-15):
                continue  # squares of weights this small are lost in float32; such a head counts as not looking
            want = getattr(reference.signals, name)(logs[:, row].exp().double().numpy())
            # The distance is the root of a divergence, which is exact to 1e-7.
            atol = 6e-4 if name == "aggtruth_js" else 2e-5
            np.testing.assert_allclose(got[name][:, row], want, atol=atol, err_msg=name)


def test_head_that_ignores_the_passages_has_no_cosine():
    passage = torch.tensor([[[0.0, 0.0]], [[0.2, 0.1]], [[0.4, 0.2]]])
    got = aggregate_passages(passage, passage.clamp(min=1e-30).log(), None, {"aggtruth_cosine"})["aggtruth_cosine"]
    np.testing.assert_allclose(got[:, 0], [0.0, 0.5, 0.5], atol=1e-6)


def test_a_single_head_has_nothing_to_be_compared_with():
    passage = torch.tensor([[[0.2, 0.3]]])
    got = aggregate_passages(passage, passage.log(), torch.zeros(passage.shape[:-1]), AGGTRUTH)
    assert got["aggtruth_cosine"].item() == 0 and got["aggtruth_js"].item() == 0


def test_passages_whose_sum_rounds_above_one_leave_no_negative_residual():
    passage = torch.tensor([[[0.7, 0.3 + 2e-7]], [[0.5, 0.5]]])
    for name, values in aggregate_passages(passage, passage.log(), torch.zeros(passage.shape[:-1]), AGGTRUTH).items():
        assert torch.isfinite(values).all(), name


@pytest.mark.parametrize(("length", "count"), [(1, 1), (5, 1), (9, 1), (10, 1), (19, 1), (20, 2), (29, 2), (30, 3)])
def test_a_tenth_of_the_passage_but_at_least_one_token(length, count):
    weights = torch.softmax(torch.arange(length + 2.0, dtype=torch.float64), -1).expand(2, -1)
    rows = AttentionRows(
        RowGeometry(0, 0, length + 1, 1, ((0, length),), length), frozenset({"external_context_score"})
    )
    call = call_with(weights, length + 2)
    call.query[0, :, -2] = call.query[0, :, -1]
    rows.add_layer(call)
    (index,) = rows.parts["external_context_score"]
    assert sorted(index[0, 0].tolist()) == list(range(length - count, length))
    states = torch.randn(length, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    own = torch.randn(1, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    want = torch.cosine_similarity(states[-count:].mean(0), own[0], dim=0)
    (scores,) = context_scores([index], states, own)
    np.testing.assert_allclose(scores[0, 0], want, rtol=1e-9)


def test_without_passages_scores_are_zero_not_nan():
    rows = AttentionRows(
        RowGeometry(0, 0, 3, 2, (), 2), frozenset({*HEADS, "external_context_score", "passage_attention"})
    )
    rows.add_layer(call_with(torch.full((2, 5), 0.2, dtype=torch.float64), 5))
    for name in ("aggtruth_sum", "aggtruth_cosine", "aggtruth_entropy", "aggtruth_js", "lookback_ratio_passages"):
        assert (rows.parts[name][0] == 0).all(), name
    index = rows.parts["external_context_score"][0]
    assert all((scores == 0).all() for scores in context_scores([index], torch.zeros(0, 4), torch.ones(2, 4)))
    assert rows.parts["passage_attention"][0].shape == (2, 0)


@given(logits(), st.data())
def test_lookback_ratios_and_sums_are_shares(values, data):
    heads, _, keys = values.shape
    response = data.draw(st.integers(1, keys)) if keys > 1 else 1
    prompt = max(1, keys - response)
    total = prompt + response
    header = data.draw(st.integers(0, prompt))
    start = data.draw(st.integers(0, header))
    query = torch.randn(1, heads, total, 4, generator=torch.Generator().manual_seed(keys)) * float(values.abs().max())
    key = torch.randn(1, heads, total, 4, generator=torch.Generator().manual_seed(total))
    rows = AttentionRows(
        RowGeometry(0, 0, prompt, response, ((start, header),), header), frozenset({*HEADS, "passage_attention"})
    )
    rows.add_layer(AttentionCall(torch.nn.Identity(), query, key, None, 1.0, None, None))
    for name in ("lookback_ratio", "lookback_ratio_passages", "aggtruth_sum"):
        (part,) = rows.parts[name]
        assert part.shape == (heads, response)
        assert torch.isfinite(part).all() and part.min() >= 0 and part.max() <= 1 + 1e-5, name
    assert rows.parts["passage_attention"][0].max() <= 1 + 1e-5


def test_blocks_do_not_change_anything(monkeypatch):
    from groundscope.trace.signals import attention

    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(1, 4, 60, 8, generator=generator), torch.randn(1, 2, 60, 8, generator=generator)
    call = AttentionCall(torch.nn.Identity(), query, key, None, 0.4, None, None)
    parts = []
    for budget in (1 << 30, 1):  # one block; blocks of eight rows
        monkeypatch.setattr(attention, "_CPU_BLOCK", budget)
        rows = AttentionRows(
            RowGeometry(0, 0, 20, 40, ((2, 9), (11, 15)), 17),
            frozenset({*HEADS, "external_context_score", "passage_attention"}),
        )
        rows.add_layer(call)
        parts.append(rows.parts)
    assert set(parts[0]) == {*HEADS, "external_context_score", "passage_attention"}
    for name in parts[0]:
        whole, cut = parts[0][name][0], parts[1][name][0]
        if name == "external_context_score":
            whole, cut = whole.sort(-1).values, cut.sort(-1).values
        # Sums are rounded otherwise where a block has another width, and a root enlarges that.
        torch.testing.assert_close(cut, whole, rtol=1e-6, atol=2e-6 if name == "aggtruth_js" else 1e-7)


@pytest.mark.parametrize("apart", [0, 1e-6, 1e-4, 1e-2, 1])
def test_the_divergence_of_heads_that_nearly_agree_does_not_drown_in_rounding(apart):
    generator = torch.Generator().manual_seed(0)
    base = torch.randn(1, 7, 300, generator=generator, dtype=torch.float64) * 3
    logits = base + apart * torch.randn(6, 7, 300, generator=generator, dtype=torch.float64)
    exact = torch.softmax(logits, -1) * 0.4
    heads = exact.float()
    log_sum = torch.zeros(heads.shape[:-1])
    got = aggregate_passages(heads, heads.log(), log_sum, {"aggtruth_js"})["aggtruth_js"]
    want = aggregate_passages(heads.double(), heads.double().log(), log_sum.double(), {"aggtruth_js"})["aggtruth_js"]
    np.testing.assert_allclose(got, want, atol=3e-7 if apart < 1 else 3e-6)


def test_the_divergence_takes_heads_that_look_at_nothing():
    heads = torch.zeros(3, 2, 5)
    heads[0, 0, 1] = 0.5
    logits = torch.where(heads > 0, heads.log(), torch.full_like(heads, -1e30))
    got = aggregate_passages(heads, logits, torch.zeros(heads.shape[:-1]), {"aggtruth_js"})["aggtruth_js"]
    # p = (0.5, 0.5) against q = (1/6, 5/6), and p = (0, 1) against the same q.
    p, q = np.array([[0.5, 0.5], [0, 1], [0, 1]]), np.array([1 / 6, 5 / 6])
    m = (p + q) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.nan_to_num(p * np.log(p / m)) + q * np.log(q / m)
    np.testing.assert_allclose(got[:, 0], np.sqrt(terms.sum(-1) / 2), rtol=1e-6)
    assert (got[:, 1] == 0).all()


def test_scores_do_not_depend_on_how_channels_are_divided(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    context, states = torch.randn(40, 30, generator=generator), torch.randn(5, 30, generator=generator)
    layers = [torch.randint(0, 40, (3, 5, 4), generator=generator, dtype=torch.int16) for _ in range(2)]
    whole = context_scores(layers, context, states)
    monkeypatch.setattr("groundscope.trace.signals.attention._CPU_GATHERED", 700)
    for got, want in zip(context_scores(layers, context, states), whole, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
