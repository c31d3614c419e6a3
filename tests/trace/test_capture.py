"""Which row belongs to which token, what a window hides, and that nothing is left behind."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from tiny_layouts import assert_same, layout_of, some_cases, some_layouts

import groundscope as gs
from groundscope.errors import GroundscopeError
from groundscope.lm.anatomy.interface import current_observer
from groundscope.trace.engine import trace_each
from groundscope.trace.signals import SIGNALS
from reference import WINDOW, families
from reference.signals import lookback_ratio

ALL = list(SIGNALS)
OWN_ROW = ("aggtruth_sum", "aggtruth_cosine", "aggtruth_entropy", "aggtruth_js", "passage_attention")
OF_THE_TOKEN = ("token_logprob", "token_logprob_contrast", "information_processing_rate_calibrated")


@pytest.fixture(scope="module")
def lm():
    return gs.LanguageModel(families.build("llama", dtype=torch.float64))


def changed_rows(one: gs.Trace, other: gs.Trace, name: str) -> list[int]:
    difference = np.abs(one[name] - other[name]).reshape(one.tokens, -1).max(axis=1)
    return np.flatnonzero(difference > 1e-6).tolist()


@pytest.mark.parametrize("changed", [0, 2, 4])
def test_a_token_changes_its_own_row_and_what_comes_after_it_only(lm, changed):
    (case,) = some_cases(1, response_length=(5, 5))
    response = list(case.response_ids)
    response[changed] = 3 if response[changed] != 3 else 4
    one, other = lm.trace([layout_of(case), layout_of(case, response_ids=response)], ALL)
    after = list(range(changed + 1, 5))
    for name in ALL:
        rows = changed_rows(one, other, name)
        if name in ("passage_percentage", "response_chunk"):
            assert rows == []
        elif name == "chunk_context_score":
            # The whole response is one chunk.
            assert rows == list(range(5))
        elif name in OWN_ROW or name in OF_THE_TOKEN:
            assert rows == [changed, *after], name
        elif name == "external_context_score":
            # The passages' last states cannot see the response; another token may be most attended, or not.
            assert set(rows) <= set(after)
        else:
            assert rows == after, name


def test_response_states_do_not_leak_into_the_prompts_rows(lm):
    (case,) = some_cases(1, response_length=(6, 6))
    whole = lm.trace(layout_of(case), ALL)
    for length in (1, 3):
        cut = lm.trace(layout_of(case, response_ids=case.response_ids[:length]), ALL)
        for name in ALL:
            if name == "chunk_context_score":
                continue  # of the chunk, which was cut too
            np.testing.assert_allclose(cut[name], whole[name][:length], rtol=1e-5, atol=1e-6, err_msg=name)


def test_teacher_forced_pass_equals_generation_step_by_step():
    model = families.build("llama")
    model.set_attn_implementation("eager")
    prompt, header = [1, 9, 8, 7, 6, 5], 4
    out = model.generate(
        torch.tensor([prompt]),
        max_new_tokens=3,
        min_new_tokens=3,
        do_sample=False,
        output_attentions=True,
        output_logits=True,
        return_dict_in_generate=True,
    )
    response = out.sequences[0, len(prompt) :].tolist()
    layout = gs.Layout.from_ids(prompt, response, passages=[(1, 3)], header=(header, 6))
    trace = gs.LanguageModel(model).trace(layout, ["lookback_ratio", "aggtruth_sum", "token_logprob"])
    for token, step in enumerate(out.attentions):  # ragged: (1, head, 6, 6), then (1, head, 1, 7), ...
        for layer, weights in enumerate(step):
            for head, row in enumerate(weights[0, :, -1].double().numpy()):
                want = lookback_ratio(row, list(range(header)), list(range(header, len(row))))
                assert trace["lookback_ratio"][token, layer, head] == pytest.approx(want, abs=1e-5)
                if token:  # the step that reads token - 1 is that token's own row
                    got = trace["aggtruth_sum"][token - 1, layer, head]
                    assert got == pytest.approx(row[1:3].sum(), abs=1e-5)
        logprob = out.logits[token][0].log_softmax(-1)[response[token]]
        assert trace["token_logprob"][token] == pytest.approx(float(logprob), abs=1e-4)


@pytest.mark.parametrize("length", [7, 8, 9, 40])
@pytest.mark.parametrize("name", ["mistral", "ministral"])
def test_a_window_hides_keys_from_the_means_and_says_so(name, length):
    family = families.FAMILIES[name]
    model = families.build(name)
    prompt = [1 + (7 * i) % 90 for i in range(length)]
    response, header = [11, 12, 13, 14], length - 2
    passage = (1, length - 3)
    layout = gs.Layout.from_ids(prompt, response, passages=[passage], header=(header, length))
    trace = gs.LanguageModel(model).trace(layout, ["lookback_ratio", "lookback_ratio_passages", "aggtruth_sum"])
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        attentions = model(input_ids=torch.tensor([prompt + response]), output_attentions=True).attentions
    for layer, weights in enumerate(attentions):
        for token in range(len(response)):
            row = length + token - 1
            seen = range(max(0, row - WINDOW + 1) if layer in family.sliding_layers else 0, row + 1)
            for head in range(weights.shape[1]):
                own = weights[0, head].double().numpy()
                for signal, keys in (
                    ("lookback_ratio", range(header)),
                    ("lookback_ratio_passages", range(*passage)),
                ):
                    context = [own[row, key] for key in keys if key in seen]
                    new = [own[row, key] for key in range(header, row + 1) if key in seen]
                    mean = np.mean(context) if context else 0.0
                    want = mean / (mean + np.mean(new))
                    assert trace[signal][token, layer, head] == pytest.approx(want, rel=1e-4, abs=1e-6)
                assert trace["aggtruth_sum"][token, layer, head] == pytest.approx(
                    own[row + 1, slice(*passage)].sum(), abs=1e-5
                )
    hidden = length + len(response) - 1 - passage[0] >= WINDOW
    assert trace.blind_layers == (len(family.sliding_layers) if hidden else 0)


def test_a_window_that_hides_nothing_is_no_blindness():
    lm = gs.LanguageModel(families.build("mistral"))
    layout = gs.Layout.from_ids([5, 6, 7], [8, 9], passages=[(0, 1)])
    assert lm.trace(layout, ["lookback_ratio"]).blind_layers == 0
    far = gs.Layout.from_ids([5] * 12, [8, 9], passages=[(10, 11)])
    assert lm.trace(far, ["lookback_ratio"]).blind_layers == 0
    assert lm.trace([layout, far], ["lookback_ratio"], padding_side="left")[0].blind_layers == 0
    assert gs.LanguageModel(families.build("llama")).trace(far, ["lookback_ratio"]).blind_layers == 0


def hooks(model) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_a_model_is_as_it_was_after_a_trace_and_after_an_error():
    model = families.build("llama").train()
    model.model.layers[0].eval()
    model.set_attn_implementation("eager")
    before = [m.training for m in model.modules()]
    lm = gs.LanguageModel(model)
    lm.trace(some_layouts(3), ALL)
    handle = model.model.layers[2].mlp.register_forward_hook(lambda *_: (_ for _ in ()).throw(KeyError("broken")))
    with pytest.raises(KeyError, match="broken"):
        lm.trace(some_layouts(3), ALL)
    handle.remove()
    assert [m.training for m in model.modules()] == before
    assert model.config._attn_implementation == "eager" and hooks(model) == 0 and current_observer() is None
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    lm.trace(some_layouts(1), ALL)


def test_tracing_one_model_leaves_another_alone():
    one, other = gs.LanguageModel(families.build("llama")), gs.LanguageModel(families.build("llama", seed=5))
    layouts = some_layouts(2)
    want = other.trace(layouts, ALL)
    seen = []

    def run_other(*_):
        if not seen:
            seen.append(None)
            seen[0] = other.trace(layouts, ALL)

    handle = one.model.model.layers[1].register_forward_hook(run_other)
    first = one.trace(layouts, ALL)
    handle.remove()
    for got, expected in zip(seen[0], want, strict=True):
        assert_same(got, expected)
    for got, expected in zip(first, one.trace(layouts, ALL), strict=True):
        assert_same(got, expected)


def test_a_trace_inside_a_trace_of_the_same_model():
    lm = gs.LanguageModel(families.build("llama"))
    outer, inner = some_layouts(2, seed=3)
    want_outer, want_inner = lm.trace(outer, ALL), lm.trace(inner, ALL)
    seen = []

    def again(*_):
        if not seen:
            seen.append(None)
            seen[0] = lm.trace(inner, ALL)

    handle = lm.model.model.layers[1].self_attn.register_forward_hook(again)
    got = lm.trace(outer, ALL)
    handle.remove()
    assert_same(got, want_outer)
    assert_same(seen[0], want_inner)
    assert hooks(lm.model) == 0


@pytest.mark.parametrize("wrappers", [1, 2])
def test_two_threads_trace_one_model_at_once(wrappers):
    model = families.build("llama")
    lms = [gs.LanguageModel(model) for _ in range(wrappers)]
    jobs = [some_layouts(3, seed) for seed in (1, 2)]
    want = [lms[0].trace(job, ALL) for job in jobs]
    lms[-1].anatomy  # noqa: B018  looked at before the barrier below
    barrier = threading.Barrier(2)
    met = threading.local()

    def meet(*_):
        # Both threads are inside the second layer of their first pass before either goes on.
        if not getattr(met, "done", False):
            met.done = True
            barrier.wait(timeout=60)

    handle = model.model.layers[1].register_forward_pre_hook(meet)
    got: dict[int, list[gs.Trace]] = {}
    rounds = 6

    def work(number: int) -> None:
        for _ in range(rounds):
            got[number] = lms[number % wrappers].trace(jobs[number], ALL)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    handle.remove()
    for number in range(2):
        for trace, expected in zip(got[number], want[number], strict=True):
            assert_same(trace, expected)
    assert model.config._attn_implementation == "sdpa" and hooks(model) == 0 and not model.training


def without_keywords(model):
    """Run a model as a thread does that comes while another one's hooks are half registered or half removed."""
    noted = [(module, dict(module._forward_pre_hooks_with_kwargs)) for module in model.modules()]
    for module, _ in noted:
        module._forward_pre_hooks_with_kwargs.clear()
    try:
        model(torch.tensor([[3, 4, 5]]))
    finally:
        for module, flags in noted:
            module._forward_pre_hooks_with_kwargs.update(flags)


def test_half_registered_hooks_do_not_break_other_threads():
    lm = gs.LanguageModel(families.build("llama"))
    jobs = some_layouts(2)
    want = lm.trace(jobs, ALL)
    errors = []

    def elsewhere(*_):
        try:
            without_keywords(lm.model)
        except Exception as exc:
            errors.append(exc)

    def meet(*_):
        thread = threading.Thread(target=elsewhere)
        handle.remove()
        thread.start()
        thread.join(timeout=60)

    handle = lm.model.model.layers[1].register_forward_pre_hook(meet)
    got = lm.trace(jobs, ALL)
    assert errors == []
    for trace, expected in zip(got, want, strict=True):
        assert_same(trace, expected)


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "gpt_oss", "qwen3", "phi", "gpt2"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("side", ["right", "left"])
def test_half_precision_gives_no_nan_and_stays_near_float32(name, dtype, side):
    layouts = some_layouts(3, seed=7)
    half = families.build(name, dtype=dtype)
    fine = families.build(name, dtype=dtype).float()  # the same rounded weights
    got = gs.LanguageModel(half).trace(layouts, ALL, padding_side=side)
    want = gs.LanguageModel(fine).trace(layouts, ALL, padding_side=side)
    for trace, expected in zip(got, want, strict=True):
        for signal in ALL:
            if signal == "external_context_score":
                continue  # which tokens are the most attended tenth hangs on the last bit
            difference = np.abs(trace[signal] - expected[signal])
            scale = max(1.0, float(np.abs(expected[signal]).max()))
            # The rate jumps where the two likeliest words change places.
            typical = np.median if signal.startswith("information_processing_rate") else np.mean
            assert np.isfinite(trace[signal]).all() and typical(difference) / scale < 2e-2, signal


def test_an_example_that_fails_while_planning_leaves_no_hooks():
    lm = gs.LanguageModel(families.build("llama"))
    results = trace_each(lm, [gs.Layout.from_ids([1], []), *some_layouts(1)], ["lookback_ratio"])
    assert isinstance(results[0], GroundscopeError) and isinstance(results[1], gs.Trace)
    assert hooks(lm.model) == 0


@pytest.mark.parametrize(
    "name", ["llama", "qwen3", "gemma2", "gpt_oss", "gpt2", "mistral", "granite", "lfm2", "cohere2"]
)
def test_looking_at_attention_changes_nothing_in_the_pass(name):
    """The rows that are looked at take their output from the recomputed weights."""
    model = gs.LanguageModel(families.build(name))
    (layout,) = some_layouts(1, response_length=(7, 7))
    states = ["hidden_state_0", "hidden_state_1", "token_logprob"]
    plain = model.trace(layout, states)
    looked = model.trace(layout, [*states, "lookback_ratio"])
    for signal in states:
        np.testing.assert_allclose(looked[signal], plain[signal], rtol=1e-4, atol=1e-5, err_msg=signal)
