from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import groundscope as gs
from groundscope.detectors.registry import from_name
from groundscope.errors import InputError, MismatchError
from groundscope.train.fitting import train_detector
from groundscope.train.transfer import _ridge, transfer_detector


@pytest.fixture(scope="module")
def probe(traced):
    return train_detector(from_name("hidden-state", layer=1), traced[:24], traced[24:]).detector


@pytest.mark.parametrize("name", ["hidden-state", "lookback-lens", "aggtruth"])
@pytest.mark.parametrize("unit", ["sentence", "response"])
def test_a_probe_works_on_a_model_of_another_shape(traced, other_traced, make_tiny, name, unit):
    params = {"layer": 1, "C": 1.0} if name == "hidden-state" else {}
    old = train_detector(from_name(name, **params), traced[:24], traced[24:]).detector
    result = transfer_detector(old, traced, other_traced, unit=unit, alpha=10.0)
    new = result.detector
    assert new.shape_ == other_traced[0].trace[new.signal].shape[1:]
    assert result.units == (80 if unit == "sentence" else 40) and result.sources == 20
    assert all(np.isfinite(new.token_scores(item.trace)).all() for item in other_traced)
    if name == "hidden-state":
        assert new.score(other_traced) > 0.9
    scope = gs.Scope(make_tiny(name="other", layers=2, heads=8), new)
    assert scope.score(example=other_traced[0].example).outcome == "scored"


def test_a_linear_change_of_features_is_found(traced, probe):
    rng = np.random.default_rng(0)
    turn = rng.normal(size=(32, 32))
    turned = [
        replace(
            item,
            trace=replace(
                item.trace,
                signals={"hidden_state_1": (item.trace["hidden_state_1"] @ turn + 3).astype(np.float32)},
                fingerprint={**item.trace.fingerprint, "weights": "turned"},
            ),
        )
        for item in traced
    ]
    result = transfer_detector(probe, traced, turned, alpha=0.0)
    assert result.determined and result.r2 > 0.99 and result.spearman > 0.99
    for before, after in zip(traced, turned, strict=True):
        want, got = probe.token_scores(before.trace), result.detector.token_scores(after.trace)
        np.testing.assert_allclose(got, want, atol=0.02)


def test_the_two_models_may_cut_text_differently(traced, other_traced, probe):
    """Units are found by characters: shifting one side's tokens by a merge changes nothing but the means."""
    item = other_traced[0]
    layout = item.trace.layout
    keep = np.arange(layout.response_length) != 1
    merged = replace(
        layout, response_ids=layout.response_ids[keep], response_offsets=np.asarray(layout.response_offsets)[keep]
    )
    signals = {name: values[keep] for name, values in item.trace.signals.items()}
    changed = replace(item, trace=replace(item.trace, layout=merged, signals=signals))
    assert transfer_detector(probe, traced, [changed, *other_traced[1:]]).units == 80


def test_the_answer_is_that_of_mapping_all_features_first():
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(30, 4)), rng.normal(size=(30, 7))
    weights, shift = rng.normal(size=4), 0.3
    mapped = [_ridge(right, left[:, column], 2.0) for column in range(4)]
    coef, intercept = _ridge(right, left @ weights + shift, 2.0)
    np.testing.assert_allclose(coef, sum(w * m[0] for w, m in zip(weights, mapped, strict=True)))
    np.testing.assert_allclose(intercept, sum(w * m[1] for w, m in zip(weights, mapped, strict=True)) + shift)


@settings(deadline=None, max_examples=25)
@given(st.integers(3, 12), st.integers(1, 20), st.integers(0, 99))
def test_both_ways_to_solve_are_one(rows, columns, seed):
    from sklearn.linear_model import LinearRegression, Ridge

    rng = np.random.default_rng(seed)
    features, wanted = rng.normal(size=(rows, columns)), rng.normal(size=rows)
    scaled = (features - features.mean(0)) / features.std(0)
    for alpha, model in ((0.5, Ridge(0.5)), (0.0, LinearRegression())):
        coef, intercept = _ridge(features, wanted, alpha)
        np.testing.assert_allclose(features @ coef + intercept, model.fit(scaled, wanted).predict(scaled), atol=1e-6)


def test_a_constant_feature_gets_no_weight():
    rng = np.random.default_rng(0)
    features = np.column_stack([rng.normal(size=20), np.full(20, 0.1)])
    coef, _ = _ridge(features, rng.normal(size=20), 1.0)
    assert coef[1] == 0 and np.isfinite(coef).all()


def test_what_cannot_be_carried_over_is_refused(traced, other_traced, probe):
    with pytest.raises(MismatchError, match="same model"):
        transfer_detector(probe, traced, traced)
    with pytest.raises(MismatchError, match="learnt from traces of 'tiny'"):
        transfer_detector(probe, other_traced, traced)
    with pytest.raises(InputError, match="No example was read by both"):
        transfer_detector(probe, traced[:5], other_traced[5:])
    with pytest.raises(InputError, match="several sources"):
        transfer_detector(probe, traced[:2], other_traced[:2])
    with pytest.raises(InputError, match="'alpha'"):
        transfer_detector(probe, traced, other_traced, alpha=-1)
    changed = replace(other_traced[0], example=replace(other_traced[0].example, response="Other.", labels=()))
    with pytest.raises(InputError, match="another response"):
        transfer_detector(probe, traced, [changed, *other_traced[1:]])
