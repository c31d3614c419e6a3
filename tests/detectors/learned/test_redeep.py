"""ReDeEP at token level: what it learns, what it chooses on, and what it must never see."""

from __future__ import annotations

import os
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from planted import HEAD, HEADS, LAYER, LAYERS, planted, relabelled

from groundscope.detectors.learned.redeep import ReDeEPToken
from groundscope.errors import InputError, PrerequisiteError
from groundscope.trace.traced import TracedExample

ROOT = Path(__file__).parents[3]
GOLDEN = Path(os.environ.get("GROUNDSCOPE_GOLDEN") or ROOT.parent / "shared" / "golden")
PUBLISHED = GOLDEN / "redeep_llama2_7b_chunks.json.gz"


@pytest.fixture(scope="module")
def train(tiny):
    return planted(tiny, 24, seed=1)


@pytest.fixture(scope="module")
def dev(tiny):
    return planted(tiny, 16, seed=2)


def scores(detector, items):
    return [detector.token_scores(item.trace) for item in items]


def same(detector, other, items):
    return all(np.array_equal(*pair) for pair in zip(scores(detector, items), scores(other, items), strict=True))


@pytest.mark.parametrize("variant", ["paper", "official"])
@pytest.mark.parametrize("kind", ["span", "response"])
def test_it_finds_the_head_and_the_layer_that_tell(tiny, dev, variant, kind):
    items = planted(tiny, 40, seed=1, kind=kind, strength=4.0)
    detector = ReDeEPToken(heads=1, layers=1, beta=0.5, variant=variant).fit(items)
    assert detector.heads_ == (HEAD,) and detector.layers_ == (LAYER,)
    assert detector.level_ == ("token" if kind == "span" else "response")
    assert detector.chosen_on_ == "given" and detector.score(dev) > 0.8


def test_a_score_is_what_the_documentation_says(train):
    detector = ReDeEPToken(heads=2, layers=2, beta=0.7).fit(train)
    external = np.concatenate([item.trace["external_context_score"] for item in train]).astype(np.float64)
    knowledge = np.concatenate([item.trace["parametric_knowledge_score"] for item in train]).astype(np.float64)
    trace = train[0].trace

    def scaled(values, of):
        return (values.astype(np.float64) - of.min()) / (of.max() - of.min())

    memory = np.mean(
        [scaled(trace["parametric_knowledge_score"][:, k], knowledge[:, k]) for k in detector.layers_], axis=0
    )
    context = np.mean(
        [scaled(trace["external_context_score"][:, k, h], external[:, k, h]) for k, h in detector.heads_], axis=0
    )
    got = detector.token_scores(trace)
    np.testing.assert_allclose(got, memory - 0.7 * context, atol=1e-9)
    assert detector.response_score(got) == pytest.approx((memory - 0.7 * context).mean(), abs=1e-9)


def test_numbers_and_weight_are_chosen_on_dev_alone(tiny, train, dev):
    """T20: other labels on dev change the choice, and never the ranking or the scales."""
    fitted = ReDeEPToken().fit(train, dev)
    assert fitted.chosen_on_ == "dev"
    others = [ReDeEPToken().fit(train, relabelled(dev, seed)) for seed in range(5)]
    picks = {(len(d.heads_), len(d.layers_), d.beta_) for d in (fitted, *others)}
    assert len(picks) > 1
    for other in others:
        for one, two in ((fitted.heads_, other.heads_), (fitted.layers_, other.layers_)):
            shorter = min(len(one), len(two))
            assert one[:shorter] == two[:shorter]
        count = min(len(fitted.heads_), len(other.heads_))
        np.testing.assert_array_equal(fitted.balance_.external.low[:count], other.balance_.external.low[:count])
    extreme = [
        TracedExample(item.example, replace(item.trace, signals={k: 100 * v for k, v in item.trace.items()}))
        for item in dev
    ]
    stretched = ReDeEPToken(heads=2, layers=2).fit(train, extreme)
    plain = ReDeEPToken(heads=2, layers=2, beta=0.3).fit(train)
    np.testing.assert_array_equal(stretched.balance_.external.span, plain.balance_.external.span)


def test_choosing_on_what_was_learnt_from_is_refused(train):
    with pytest.raises(InputError, match="must not share a"):
        ReDeEPToken().fit(train, train[:6])


def test_without_choices_dev_is_not_looked_at(train, dev):
    given = {"heads": 2, "layers": 1, "beta": 0.4}
    alone = ReDeEPToken(**given).fit(train)
    assert same(alone, ReDeEPToken(**given).fit(train, dev), dev)
    assert same(alone, ReDeEPToken(**given).fit(train, relabelled(dev, 3)), dev)


def test_without_dev_sources_are_held_out(tiny, train):
    detector = ReDeEPToken(heads=1, layers=1).fit(train)
    assert detector.chosen_on_ == "held-out part"
    again = ReDeEPToken(heads=1, layers=1).fit(train)
    assert same(detector, again, train)
    whole = ReDeEPToken(heads=1, layers=1, beta=detector.beta_).fit(train)
    seeds = [ReDeEPToken(heads=1, layers=1, seed=seed).fit(train) for seed in range(4)]
    # Scales come from four fifths of the sources, so some seed misses the extremes of the whole.
    assert any(not np.array_equal(d.balance_.knowledge.span, whole.balance_.knowledge.span) for d in seeds)
    pair = list(train[:2])
    with pytest.raises(InputError, match="found none to hold out: 2 examples of 2 sources"):
        ReDeEPToken().fit(pair)


def test_examples_of_one_source_stay_together(tiny):
    items = [
        TracedExample(replace(item.example, source_id=f"s{index // 4}"), item.trace)
        for index, item in enumerate(planted(tiny, 20, seed=5))
    ]
    from groundscope.detectors.learned.redeep_base import _hold_out

    for seed in range(5):
        learn, held = _hold_out("redeep-token", items, seed)
        assert len(held) == 4 and not {item.group for item in learn} & {item.group for item in held}


def test_official_chooses_on_the_examples_it_learns_from_and_leaks(tiny, train, dev):
    detector = ReDeEPToken(variant="official").fit(train)
    assert detector.chosen_on_ == "same examples"
    assert same(detector, ReDeEPToken(variant="official").fit(train, dev), dev)
    noise = planted(tiny, 30, seed=9, strength=0.0)
    leaky = ReDeEPToken(variant="official").fit(noise)
    assert leaky.score(noise) > 0.7 > leaky.score(planted(tiny, 60, seed=10, strength=0.0))


def test_official_labels_are_those_of_the_token_before(train):
    detector, plain = ReDeEPToken(variant="official"), ReDeEPToken()
    item = next(item for item in train if item.example.labels)
    marked, moved = plain._unit_labels(item), detector._unit_labels(item)
    first = int(marked.argmax())
    assert moved.argmax() == first + 1 and moved[first + 1 :].all()


def test_candidates_limit_the_heads(train, dev):
    heads = [(2, 0), (0, 3), HEAD]
    detector = ReDeEPToken(candidates=heads).fit(train, dev)
    assert set(detector.heads_) <= set(heads) and detector.heads_[0] == HEAD
    back = ReDeEPToken(candidates=heads[::-1]).fit(train, dev)
    assert back.heads_ == detector.heads_ and same(back, detector, dev)
    with pytest.raises(InputError, match=r"Got \(3, 0\) among them"):
        ReDeEPToken(candidates=[(3, 0)]).fit(train, dev)
    with pytest.raises(InputError, match="'heads' parameter of ReDeEPToken must be at most 1"):
        ReDeEPToken(candidates=[HEAD], heads=2).fit(train, dev)


def test_layers_are_numbered_as_in_the_model(train):
    """In models where only some layers have attention, heads are named by the model's layers."""
    moved = [TracedExample(i.example, replace(i.trace, attention_layers=(1, 4, 7))) for i in train]
    detector = ReDeEPToken(candidates=[(4, 2), (7, 0)], heads=1, layers=1, beta=1.0).fit(moved)
    assert detector.heads_ == ((4, 2),)
    assert same(detector, ReDeEPToken(heads=1, layers=1, beta=1.0).fit(train), train)


def test_limits_of_the_grid(train, dev):
    detector = ReDeEPToken(max_heads=1, max_layers=2, max_beta=0.2).fit(train, dev)
    assert len(detector.heads_) == 1 and len(detector.layers_) <= 2 and detector.beta_ in (0.1, 0.2)
    assert len(ReDeEPToken(heads=HEADS * LAYERS, layers=LAYERS).fit(train, dev).heads_) == 12


def test_state_comes_back(train, dev):
    detector = ReDeEPToken(weighting="correlation").fit(train, dev)
    arrays, facts = detector.state()
    other = ReDeEPToken(weighting="correlation")
    other.restore(arrays, facts)
    other.fingerprint_ = dict(detector.fingerprint_)
    assert same(detector, other, dev)
    for name in ("heads_", "layers_", "beta_", "level_", "chosen_on_"):
        assert getattr(other, name) == getattr(detector, name)


@pytest.mark.parametrize("variant", ["paper", "official"])
def test_weights_of_heads_and_layers_make_up_the_score(train, dev, variant):
    """They say what changes when one scaled value does: a head that counts by -beta w, a layer that counts by w."""
    detector = ReDeEPToken(heads=3, layers=2, beta=0.7, variant=variant).fit(train, dev)
    heads, layers = detector.head_weights(), detector.layer_weights()
    assert heads.shape == (LAYERS, HEADS) and layers.shape == (LAYERS,)
    assert {(int(a), int(b)) for a, b in np.argwhere(heads)} == set(detector.heads_)
    assert set(np.flatnonzero(layers)) == set(detector.layers_)
    assert heads[HEAD] < 0 < layers[LAYER]
    trace = train[0].trace
    plain = detector.token_scores(trace)
    for name, side, weights, places in (
        ("external_context_score", detector.balance_.external, heads, detector.heads_),
        ("parametric_knowledge_score", detector.balance_.knowledge, layers, [(layer,) for layer in detector.layers_]),
    ):
        for place, span in zip(places, side.span, strict=True):
            moved = trace[name].copy()
            moved[(slice(None), *place)] += span
            changed = detector.token_scores(replace(trace, signals={**trace.signals, name: moved}))
            np.testing.assert_allclose(changed - plain, weights[place], atol=1e-5)


def test_weights_come_back_with_the_state_unless_an_older_version_wrote_it(train):
    detector = ReDeEPToken(weighting="correlation", heads=2, layers=2, beta=1.0).fit(train)
    arrays, facts = detector.state()
    loaded, older = ReDeEPToken(), ReDeEPToken()
    loaded.restore(arrays, facts)
    np.testing.assert_array_equal(loaded.head_weights(), detector.head_weights())
    np.testing.assert_array_equal(loaded.layer_weights(), detector.layer_weights())
    older.restore(arrays, {name: value for name, value in facts.items() if name not in ("shape", "extremes")})
    assert older.head_weights() is None and older.layer_weights() is None
    assert loaded.extremes_ == detector.extremes_ is not None and older.extremes_ is None


def test_it_does_not_score_before_it_has_learnt_nor_on_a_smaller_model(train):
    with pytest.raises(PrerequisiteError, match="must learn before it scores"):
        ReDeEPToken().token_scores(train[0].trace)
    detector = ReDeEPToken(candidates=[(2, 3)], heads=1, layers=1, beta=1).fit(train)
    small = {name: values[:, :1] for name, values in train[0].trace.items() if values.ndim > 1}
    with pytest.raises(InputError, match="more heads or layers"):
        detector.token_scores(replace(train[0].trace, signals=small))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"candidates": "some"}, "'candidates' parameter of ReDeEPToken"),
        ({"candidates": []}, "'candidates' parameter"),
        ({"candidates": [(1, 2), (1, 2)]}, "twice"),
        ({"candidates": [(1, -2)]}, r"Got \(1, -2\) among them"),
        ({"candidates": ["1.2"]}, "Got '1.2' among them"),
        ({"heads": 0}, "'heads' parameter"),
        ({"layers": 1.5}, "'layers' parameter"),
        ({"beta": -1}, "'beta' parameter"),
        ({"beta": float("nan")}, "'beta' parameter"),
        ({"weighting": "both"}, "'weighting' parameter"),
        ({"variant": "code"}, "'variant' parameter"),
        ({"variant": "official", "weighting": "correlation"}, "must be 'equal' with variant='official'"),
        ({"max_heads": 0}, "'max_heads' parameter"),
        ({"max_layers": True}, "'max_layers' parameter"),
        ({"max_beta": 0}, "'max_beta' parameter"),
        ({"seed": -1}, "'seed' parameter"),
    ],
)
def test_wrong_parameters_are_refused_at_once(arguments, words):
    with pytest.raises(InputError, match=words):
        ReDeEPToken(**arguments)


def test_one_class_is_refused(train):
    with pytest.raises(InputError, match="both classes"):
        ReDeEPToken().fit([item for item in train if not item.example.labels])


@pytest.mark.skipif(not PUBLISHED.is_file(), reason="no published features: set GROUNDSCOPE_GOLDEN to their folder")
def test_published_features_give_the_published_figures(monkeypatch, capsys):
    script = str(ROOT / "benchmarks" / "redeep_published_features.py")
    monkeypatch.setattr(sys, "argv", [script, str(PUBLISHED), "--splits", "10"])
    runpy.run_path(script, run_name="__main__")
    printed = capsys.readouterr().out
    assert "450 responses, 1159 chunks, 226 hallucinated" in printed
    assert "AUROC   0.747254" in printed and "Pearson 0.420721" in printed
    assert "(released numbers)" in printed and "(numbers chosen too)" in printed
