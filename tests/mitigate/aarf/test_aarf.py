"""AARF: which steps are changed, and that a changed step is what a naive pass of the changed model says."""

from __future__ import annotations

import copy
import threading

import numpy as np
import pytest
import torch

import groundscope as gs
from groundscope.detectors.learned.redeep import ReDeEPToken
from groundscope.errors import InputError, NonFiniteError, PrerequisiteError, UnsupportedModelError
from groundscope.mitigate.aarf.aarf import (
    CODE,
    PAPER,
    PAPER_DOLLY,
    PAPER_LLAMA3,
    SIGNALS,
    Parts,
    Preset,
    Step,
    aarf,
)
from groundscope.mitigate.aarf.last_row import changed_last_row
from groundscope.mitigate.writing.generate import generate
from groundscope.mitigate.writing.sampler import Sampler
from groundscope.mitigate.writing.session import Session
from reference import families

QUESTION, PASSAGES = "When was it completed?", ["The tower was completed in 1889.", "Bees make honey."]
HEADS, LAYERS = [(0, 1), (2, 3), (1, 0)], [1, 2]
ALWAYS, SOME = Preset(5.0, 0.2, -1e9), 8


def hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


@pytest.fixture(scope="module")
def exact(make_tiny):
    lm = make_tiny()
    lm.model.double()
    return gs.LanguageModel(lm.model, lm.tokenizer, name="exact")


@pytest.fixture(scope="module")
def prompt(exact):
    return exact.renderer().prompt(QUESTION, PASSAGES)


@pytest.fixture(scope="module")
def parts(exact, prompt):
    """Parts whose extremes are those of a plain answer, and the middle of its scores."""
    session = Session(exact, prompt, SIGNALS)
    list(generate(session, max_new_tokens=SOME))
    return parts_of(exact, session.trace(0), HEADS, LAYERS)


def parts_of(lm, trace, heads, layers):
    places = lm.anatomy.attention_layers
    external = [trace["external_context_score"][:, places.index(layer), head] for layer, head in heads]
    knowledge = [trace["parametric_knowledge_score"][:, layer] for layer in layers]
    return Parts.given(
        lm, heads, layers, 0.7,
        [(float(v.min()) - 0.01, float(v.max()) + 0.01) for v in external],
        [(float(v.min()) - 0.01, float(v.max()) + 0.01) for v in knowledge],
    )  # fmt: skip


def scores_of(parts, trace):
    """Scores of tokens, written apart from the product's code."""

    def side(values, s):
        return np.mean([(v - low) / span for v, low, span in zip(values, s.low, s.span, strict=True)], axis=0)

    external = [trace["external_context_score"].astype(float)[:, layer, head] for layer, head in parts.heads_]
    knowledge = [trace["parametric_knowledge_score"].astype(float)[:, layer] for layer in parts.layers_]
    raw = side(knowledge, parts.balance_.knowledge) - 0.7 * side(external, parts.balance_.external)
    return (raw + 0.7) / 1.7


def naive_logits(lm, ids, rows, alpha, beta):
    """Logits of the last position of a whole pass in which some rows are changed."""
    twin = copy.deepcopy(lm.model)
    size = twin.config.hidden_size // twin.config.num_attention_heads

    def louder(layer):
        def hook(_module, args):
            hidden = args[0].clone()
            for at, head in HEADS:
                if at == layer:
                    hidden[:, rows, head * size : (head + 1) * size] *= alpha
            return (hidden,)

        return hook

    def quieter(_module, _args, output):
        output = output.clone()
        output[:, rows] *= beta
        return output

    for layer, block in enumerate(twin.model.layers):
        block.self_attn.o_proj.register_forward_pre_hook(louder(layer))
        if layer in LAYERS:
            block.mlp.register_forward_hook(quieter)
    with torch.no_grad():
        return twin(input_ids=torch.tensor([ids])).logits[0, -1]


@pytest.mark.parametrize("preset", [PAPER, CODE])
@pytest.mark.parametrize(("passes", "cache"), [(2, "plain"), (2, "changed"), (1, "changed")])
def test_every_token_is_that_of_a_naive_pass(exact, prompt, parts, preset, passes, cache):
    session = Session(exact, prompt, SIGNALS)
    run = aarf(session, parts, preset, max_new_tokens=SOME, passes=passes, cache=cache)
    tokens = list(run)
    chosen = [step.edited for step in run.steps]
    assert len(run.steps) in (len(tokens), len(tokens) + 1) and any(chosen[1:]) and not all(chosen)
    base, ids = prompt.prompt_ids.tolist(), session.ids(0)
    for number, token in enumerate(tokens):
        changed = [i for i in range(number + 1) if chosen[i]] if cache == "changed" else [number] * chosen[number]
        rows = [len(base) + i - 1 for i in changed]
        want = naive_logits(exact, base + ids[:number], rows, preset.alpha, preset.beta)
        assert token.id == int(want.argmax()), number
    deciding = run.steps if passes == 2 else [Step(0, 0, -1.0, False), *run.steps]
    assert all((step.score > preset.tau) == edited for step, edited in zip(deciding, chosen, strict=False))


def test_with_a_plain_cache_scores_and_signals_are_those_of_the_plain_model(exact, prompt, parts):
    session = Session(exact, prompt, SIGNALS)
    run = aarf(session, parts, PAPER, max_new_tokens=SOME)
    tokens = list(run)
    want = exact.trace(session.trace(0).layout, list(SIGNALS))
    np.testing.assert_allclose(
        [step.score for step in run.steps][: len(tokens)], scores_of(parts, want), rtol=1e-4, atol=1e-5
    )
    for name in SIGNALS:
        np.testing.assert_allclose(session.trace(0)[name], want[name], rtol=1e-4, atol=1e-5)


def test_the_caches_differ(exact, prompt, parts):
    found = {}
    for cache in ("plain", "changed"):
        session = Session(exact, prompt, SIGNALS)
        list(aarf(session, parts, ALWAYS, max_new_tokens=4, cache=cache))
        session.feed([[7]])
        found[cache] = session.logits
    plain = Session(exact, prompt, SIGNALS)
    assert (found["plain"] - found["changed"]).abs().max() > 1e-3
    plain.feed([[7]])


@pytest.mark.parametrize(("passes", "cache"), [(2, "plain"), (2, "changed"), (1, "changed")])
@pytest.mark.parametrize("sampler", [None, Sampler(temperature=1.0, top_p=0.9, seed=3)])
def test_factors_of_one_change_nothing(tiny, prompt, parts, sampler, passes, cache):
    plain, session = Session(tiny, prompt, SIGNALS), Session(tiny, prompt, SIGNALS)
    want = list(generate(plain, sampler, 10))
    run = aarf(session, parts, Preset(1.0, 1.0, -1e9), sampler, 10, passes=passes, cache=cache)
    got = list(run)
    assert [(t.id, t.piece) for t in got] == [(t.id, t.piece) for t in want]
    assert all(step.edited for step in run.steps[2 - passes :]) and run.steps[0].edited == (passes == 2)
    for one, two in zip(got, want, strict=True):
        for name in SIGNALS:
            np.testing.assert_array_equal(one.signals[name], two.signals[name])


@pytest.mark.parametrize("name", ["mistral", "gemma2", "gpt_neox", "gpt2", "gpt_oss", "lfm2", "opt"])
@pytest.mark.parametrize("passes", [1, 2])
def test_every_kind_of_family_can_be_changed(name, passes):
    lm = gs.LanguageModel(families.build(name))
    layer = lm.anatomy.attention_layers[-1]
    layout = gs.Layout.from_ids(list(range(5, 35)), [], passages=[(3, 12)], header=(28, 30))
    plain = Session(lm, layout, SIGNALS)
    want = [token.id for token in generate(plain, max_new_tokens=4)]
    parts = parts_of(lm, plain.trace(0), [(layer, 0), (layer, 1)], [0, len(lm.anatomy.layers) - 1])
    for preset, same in ((Preset(1.0, 1.0, -1e9), True), (Preset(40.0, 0.0, -1e9), False)):
        session = Session(lm, layout, SIGNALS)
        got = [t.id for t in aarf(session, parts, preset, max_new_tokens=4, passes=passes, cache="changed")]
        assert torch.equal(session.logits, plain.logits) == same and (got == want or not same)
    assert hooks(lm.model) == 0


def test_sequences_of_a_batch_are_changed_on_their_own(exact, parts):
    renderer = exact.renderer()
    prompts = [renderer.prompt(QUESTION, PASSAGES), renderer.prompt("Who?", PASSAGES[:1])]
    session = Session(exact, prompts, SIGNALS)
    run = aarf(session, parts, PAPER, max_new_tokens=8, cache="changed")
    list(run)
    assert len({step.edited for step in run.steps if step.token == 0} | {s.edited for s in run.steps}) == 2
    for sequence, layout in enumerate(prompts):
        alone = Session(exact, layout, SIGNALS)
        own = aarf(alone, parts, PAPER, max_new_tokens=8, cache="changed")
        list(own)
        assert session.ids(sequence) == alone.ids(0)
        got = [(s.token, s.edited) for s in run.steps if s.sequence == sequence]
        assert got == [(s.token, s.edited) for s in own.steps]


def test_a_text_is_gone_on_with(exact, prompt, parts):
    whole, pieces = Session(exact, prompt, SIGNALS), Session(exact, prompt, SIGNALS)
    run = aarf(whole, parts, PAPER, max_new_tokens=SOME)
    list(run)
    steps = []
    for count in (2, 3, SOME - 5):
        part = aarf(pieces, parts, PAPER, max_new_tokens=count)
        list(part)
        steps += part.steps
    assert pieces.ids(0) == whole.ids(0)
    assert [(s.token, s.edited) for s in steps] == [(s.token, s.edited) for s in run.steps]


def test_random_documents_are_read_unchanged(exact, parts):
    layout = exact.renderer().prompt(QUESTION, PASSAGES, [["Rivers rise in the mountains."]])
    session = Session(exact, layout, [*SIGNALS, "token_logprob_contrast"])
    list(aarf(session, parts, ALWAYS, max_new_tokens=5, cache="changed"))
    trace = session.trace(0)
    want = exact.trace(trace.layout, ["token_logprob_contrast"])
    np.testing.assert_allclose(trace["token_logprob_contrast"], want["token_logprob_contrast"], rtol=1e-5, atol=1e-6)


def test_a_fitted_detector_brings_its_own_balance(tiny, prompt):
    from groundscope.trace.traced import TracedExample

    words = ("In 1889.", "Bees did it in 1887.", "It stands in Paris.", "The river made honey.")
    items = []
    for number, response in enumerate(words * 2):
        marks = (gs.Label(3, len(response)),) if number % 2 else ()
        example = gs.Example(
            question=f"{QUESTION} {number}", passages=tuple(PASSAGES), response=response, labels=marks,
            label_kind="span", id=str(number), source_id=str(number),
        )  # fmt: skip
        trace = tiny.trace(tiny.renderer().layout(example), list(SIGNALS))
        items.append(TracedExample(example, gs_fingerprinted(tiny, trace)))
    detector = ReDeEPToken(heads=2, layers=1, beta=0.5).fit(items)
    session = Session(tiny, prompt, SIGNALS)
    run = aarf(session, detector, PAPER, max_new_tokens=8)
    tokens = list(run)
    learnt = np.concatenate([detector.token_scores(item.trace) for item in items])
    assert detector.extremes_ == (learnt.min(), learnt.max())
    low, high = detector.extremes_
    want = (detector.token_scores(session.trace(0)) - low) / (high - low)
    np.testing.assert_allclose([s.score for s in run.steps][: len(tokens)], want, rtol=1e-4, atol=1e-5)
    scaled = aarf(Session(tiny, prompt, SIGNALS), detector, Preset(1, 1, 0), max_new_tokens=2, extremes=(-1.0, 3.0))
    list(scaled)
    first = run.steps[0].score * (high - low) + low
    assert scaled.steps[0].score == pytest.approx((first + 1) / 4)
    bounds = Parts(detector.heads_, detector.layers_, detector.balance_)
    unknown = aarf(Session(tiny, prompt, SIGNALS), bounds, Preset(1, 1, 0), max_new_tokens=2)
    list(unknown)
    assert unknown.steps[0].score == pytest.approx((first + 0.5) / 1.5)
    with pytest.raises(PrerequisiteError):
        aarf(Session(tiny, prompt, SIGNALS), ReDeEPToken())


def gs_fingerprinted(lm, trace):
    from dataclasses import replace

    return replace(trace, fingerprint=lm.fingerprint())


def test_the_model_is_as_it_was_also_after_an_error(make_tiny, prompt, parts):
    lm = make_tiny()
    implementation = lm.model.config._attn_implementation
    session = Session(lm, prompt, SIGNALS)
    plain = session.logits.clone()
    run = aarf(session, parts, ALWAYS, max_new_tokens=6)
    first = next(run)
    handle = lm.model.model.layers[1].mlp.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(run)
    handle.remove()
    assert hooks(lm.model) == 0 and lm.model.config._attn_implementation == implementation
    assert first.number == 0 and session.tokens == 1
    run.close()
    assert list(run) == []
    assert torch.equal(Session(lm, prompt, SIGNALS).logits, plain)
    with pytest.raises(RuntimeError), changed_last_row(lm, parts.heads_, parts.layers_, 5.0, 0.2, [True]):
        raise RuntimeError("inside")
    assert hooks(lm.model) == 0 and torch.equal(Session(lm, prompt, SIGNALS).logits, plain)


def test_another_thread_reads_the_model_unchanged(make_tiny, prompt, parts):
    lm, seen = make_tiny(), []
    plain = Session(lm, prompt, SIGNALS).logits
    with changed_last_row(lm, parts.heads_, parts.layers_, 5.0, 0.2, [True]):
        thread = threading.Thread(target=lambda: seen.append(Session(lm, prompt, SIGNALS).logits))
        thread.start()
        thread.join()
        assert not torch.allclose(Session(lm, prompt, SIGNALS).logits, plain)
    assert torch.equal(seen[0], plain)


def test_wrong_use_is_refused_before_anything_is_written(tiny, prompt, parts):
    session = Session(tiny, prompt, SIGNALS)
    cases = [
        ({"detector": object()}, "'detector' parameter"),
        ({"preset": "paper"}, "'preset' parameter"),
        ({"passes": 3}, "'passes' parameter"),
        ({"cache": "none"}, "'cache' parameter"),
        ({"passes": 1, "cache": "plain"}, "read once"),
        ({"extremes": (1.0, 1.0)}, "'extremes' parameter"),
        ({"detector": Parts(((3, 0),), (0,), parts.balance_)}, "heads 0 to 3"),
        ({"detector": Parts(((0, 0),), (5,), parts.balance_)}, "layers 0 to 2"),
        ({"detector": Parts((), (1,), parts.balance_)}, "at least one head"),
    ]
    for options, words in cases:
        with pytest.raises(InputError, match=words):
            aarf(session, **{"detector": parts, **options})
    with pytest.raises(InputError, match="'parametric_knowledge_score', which this session"):
        aarf(Session(tiny, prompt, SIGNALS[:1]), parts)
    for name, value in (("alpha", -1.0), ("beta", float("nan")), ("tau", "0.4")):
        with pytest.raises(InputError, match=f"'{name}' parameter of Preset"):
            Preset(**{"alpha": 1.0, "beta": 1.0, "tau": 0.0, name: value})
    with pytest.raises(InputError, match="'context' parameter of Parts"):
        Parts.given(tiny, [(0, 0)], [0], 1.0, [(0.5, 0.5)], [(0.0, 1.0)])
    with pytest.raises(InputError, match="'weight' parameter of Parts"):
        Parts.given(tiny, [(0, 0)], [0], -1.0, [(0.0, 0.5)], [(0.0, 1.0)])
    assert session.tokens == 0


def test_models_without_readable_attention_are_refused():
    lm = gs.LanguageModel(families.build(families.REFUSED[0]))
    with pytest.raises(UnsupportedModelError):
        Parts.given(lm, [(0, 0)], [0], 1.0, [(0.0, 0.5)], [(0.0, 1.0)])


def test_broken_weights_are_named(make_tiny, prompt, parts):
    lm = make_tiny()
    session = Session(lm, prompt, SIGNALS)
    run = aarf(session, parts, PAPER, max_new_tokens=4)
    with torch.no_grad():
        lm.model.model.layers[2].mlp.down_proj.weight.fill_(torch.nan)
    with pytest.raises(NonFiniteError):
        list(run)


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize(("alpha", "beta"), [(1e300, 1.0), (1.0, 1e300)])
def test_factors_that_break_the_model_are_named(tiny, prompt, parts, passes, alpha, beta):
    run = aarf(Session(tiny, prompt, SIGNALS), parts, Preset(alpha, beta, -1e9), max_new_tokens=4, passes=passes)
    with pytest.raises(NonFiniteError, match=r"1e\+300.*unchanged it did not"):
        list(run)


def test_presets_are_those_published():
    assert [(p.alpha, p.beta, p.tau) for p in (PAPER, PAPER_LLAMA3, PAPER_DOLLY, CODE)] == [
        (5.0, 0.2, 0.4), (5.0, 0.2, 0.0), (2.0, 0.5, 0.6), (1.2, 0.8, 0.6),
    ]  # fmt: skip
    assert all("ReDeEP" in preset.source for preset in (PAPER, PAPER_LLAMA3, PAPER_DOLLY, CODE))
