"""Scope.generate: text, verdict and log for every strategy; what is refused, and when."""

from __future__ import annotations

import json

import numpy as np
import pytest

import groundscope as gs
from groundscope.data.contrast import neutral_passages
from groundscope.errors import ContextTooLongError, InputError, UnknownNameError
from groundscope.mitigate.answering.abstain import REFUSAL
from groundscope.mitigate.answering.options import STRATEGIES, Writing
from groundscope.mitigate.writing.decisions import DecisionLog, replay
from groundscope.mitigate.writing.generate import generate
from groundscope.mitigate.writing.sampler import Sampler
from groundscope.mitigate.writing.session import Session
from groundscope.verdict import Verdict

QUESTION = "When was it completed?"
PASSAGES = ["The tower was completed in 1889.", "Bees make honey."]
# AARF needs a detector of its own: tests/mitigate/test_ways.py.
ANY = sorted(set(STRATEGIES) - {"aarf"})
SMALL = {"guided": {"candidates": 3, "chunk": 4}, "best-of-n": {"n": 3}}


def forwards(lm, work):
    """How many passes of the model some work takes."""
    count = []
    handle = lm.anatomy.decoder.register_forward_pre_hook(lambda *_: count.append(1))
    try:
        work()
    finally:
        handle.remove()
    return len(count)


@pytest.fixture(scope="module")
def scopes(tiny):
    return {name: gs.Scope(tiny, name, threshold=1.0) for name in ("contrast", "perplexity", "novelty")}


@pytest.mark.parametrize("detector", ["contrast", "perplexity"])
@pytest.mark.parametrize("strategy", ANY)
def test_text_verdict_and_log_agree(tiny, scopes, detector, strategy):
    said: list[str] = []
    options = {"max_new_tokens": 14, "seed": 3, **SMALL.get(strategy, {})}
    done = scopes[detector].generate(QUESTION, PASSAGES, strategy, on_text=said.append, **options)
    assert done.text == done.verdict.response == done.log.text == "".join(said) == replay(done.log, tiny.tokenizer)
    assert done.verdict.outcome in ("scored", "partial") and done.verdict.passages == tuple(PASSAGES)
    assert (done.strategy, done.log.strategy, done.ended) == (strategy, strategy, "length")
    assert done.verdict.flagged == (done.verdict.score >= 1.0) and done.verdict.question == QUESTION
    assert (done.verdict.contrast is not None) == (detector == "contrast")
    if done.verdict.contrast is not None:
        assert done.verdict.contrast["drawn"] == "before the response"
        assert any(text.startswith(done.verdict.contrast["begins"]) for text in neutral_passages())
    record = json.loads(json.dumps(done.to_dict(), allow_nan=False))
    assert Verdict.from_dict(record["verdict"]) == done.verdict and DecisionLog.from_dict(record["log"]) == done.log
    assert "passages" not in done.to_dict(include_context=False)["verdict"]
    again = scopes[detector].generate(QUESTION, PASSAGES, strategy, **options)
    assert again.text == done.text and again.log == done.log
    if strategy != "greedy":
        other = scopes[detector].generate(QUESTION, PASSAGES, strategy, **options | {"seed": 4})
        assert other.text != done.text


def test_the_verdict_is_that_of_reading_the_finished_tokens(tiny, scopes):
    done = scopes["perplexity"].generate(QUESTION, PASSAGES, "sample", max_new_tokens=14)
    prompt = tiny.renderer().prompt(QUESTION, PASSAGES)
    session = Session(tiny, prompt)
    list(generate(session, Sampler(0.9, 0.95), 14))
    logprob = tiny.trace(session.trace(0).layout, ["token_logprob"])["token_logprob"]
    kept = len(done.verdict.tokens)
    assert [token.score for token in done.verdict.tokens] == pytest.approx(list(-logprob[:kept]), rel=1e-3, abs=1e-4)
    evidence = [item for span in done.verdict.spans for item in span.evidence]
    assert all(item.passage in (0, 1) for item in evidence)


def test_the_answer_is_not_read_again_where_signals_came_on_the_way(tiny, scopes):
    tiny.anatomy  # noqa: B018  found out before counting
    work = forwards(tiny, lambda: scopes["perplexity"].generate(QUESTION, PASSAGES, max_new_tokens=6))
    assert work == 1 + 6


def test_a_detector_of_finished_texts_judges_but_does_not_guide(tiny, scopes):
    for strategy in ("greedy", "sample", "best-of-n"):
        done = scopes["novelty"].generate(QUESTION, PASSAGES, strategy, max_new_tokens=9, **SMALL.get(strategy, {}))
        again = scopes["novelty"].score(QUESTION, PASSAGES, done.text)
        assert done.verdict.outcome == again.outcome and done.verdict.score == again.score
    said: list[str] = []
    with pytest.raises(InputError, match="'novelty' reads '"):
        scopes["novelty"].generate(QUESTION, PASSAGES, "guided", on_text=said.append)
    assert not said


def test_an_empty_answer_is_no_answer(make_tiny):
    lm = make_tiny()
    lm.model.generation_config.eos_token_id = list(range(lm.model.config.vocab_size))
    for strategy in ANY:
        done = gs.Scope(lm, "perplexity", threshold=1.0).generate(QUESTION, PASSAGES, strategy, abstain="refuse")
        assert (done.text, done.ended, done.verdict.outcome) == ("", "end", "no_answer")
        assert done.abstention.action == "kept"


def test_best_of_n_shows_all_verdicts(scopes):
    done = scopes["perplexity"].generate(QUESTION, PASSAGES, "best-of-n", n=4, max_new_tokens=12)
    assert len(done.verdicts) == 4
    assert done.verdict.score == min(item.score for item in done.verdicts if item.score is not None)


def test_abstaining(tiny):
    always = gs.Scope(tiny, "perplexity", threshold=-1.0)
    done = always.generate(QUESTION, PASSAGES, max_new_tokens=12, abstain="refuse")
    assert done.text == REFUSAL and done.verdict.flagged and done.verdict.response == done.log.text
    assert done.abstention.removed[0].text == done.log.text
    never = gs.Scope(tiny, "perplexity", threshold=1e6)
    kept = never.generate(QUESTION, PASSAGES, max_new_tokens=12, abstain="remove")
    assert kept.text == kept.log.text == done.log.text and kept.abstention.action == "kept"
    with pytest.raises(InputError, match="before it is checked"):
        never.generate(QUESTION, PASSAGES, abstain="refuse", on_text=print)


@pytest.mark.parametrize("name", ["on_text", "on_draft"])
def test_a_listener_that_cannot_be_called_is_refused_before_anything_is_written(scopes, name):
    with pytest.raises(InputError, match=f"{name!r} parameter of generate takes a function. Got 5"):
        scopes["perplexity"].generate(QUESTION, PASSAGES, max_new_tokens=3, **{name: 5})


def test_stop_strings_and_left_in_the_middle(tiny, scopes):
    free = scopes["perplexity"].generate(QUESTION, PASSAGES, max_new_tokens=14)
    stop = free.text[5:7]
    done = scopes["perplexity"].generate(QUESTION, PASSAGES, max_new_tokens=14, stop=[stop])
    assert done.text == free.text[: free.text.index(stop)] and done.ended == "stop"
    assert replay(done.log, tiny.tokenizer) == done.text

    def leave(piece):
        raise KeyboardInterrupt

    def hooks():
        return [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in tiny.model.modules()]

    # The model is shared, and transformers leaves hooks of its own on one that was asked for all its states.
    before = hooks()
    for strategy in ANY:
        with pytest.raises(KeyboardInterrupt):
            scopes["perplexity"].generate(QUESTION, PASSAGES, strategy, max_new_tokens=9, on_text=leave)
    assert tiny.model.config._attn_implementation != "groundscope"
    assert hooks() == before
    assert scopes["perplexity"].generate(QUESTION, PASSAGES, max_new_tokens=14).text == free.text


def test_passages_that_fill_the_context_are_refused(make_tiny):
    lm = make_tiny(context=120)
    scope = gs.Scope(lm, "perplexity", threshold=1.0)
    length = len(lm.renderer().prompt(QUESTION, PASSAGES).prompt_ids)
    for strategy in ANY:
        with pytest.raises(ContextTooLongError, match="lower max_new_tokens") as caught:
            scope.generate(QUESTION, PASSAGES * 20, strategy, max_new_tokens=4)
        assert caught.value.limit == 120 and "long_context" not in str(caught.value)
        with pytest.raises(ContextTooLongError):
            scope.generate(QUESTION, PASSAGES, strategy, max_new_tokens=121 - length)
    done = scope.generate(QUESTION, PASSAGES, max_new_tokens=120 - length)
    assert done.verdict.outcome in ("scored", "partial")


@pytest.mark.parametrize(
    ("strategy", "options", "error", "said"),
    [
        ("beam", {}, UnknownNameError, "strategy"),
        ("greedy", {"temperature": 0.5}, InputError, "no effect with strategy='greedy'"),
        ("sample", {"chunk": 4}, InputError, "choose 'guided'"),
        ("guided", {"n": 4}, InputError, "choose 'best-of-n'"),
        ("sample", {"temperature": 0}, InputError, "strategy='greedy'"),
        ("sample", {"top_p": 2}, InputError, "top_p"),
        ("greedy", {"abstain": "maybe"}, InputError, "abstain"),
        ("greedy", {"max_tokens": 4}, UnknownNameError, "max_new_tokens"),
        ("greedy", {"max_new_tokens": 0}, InputError, "max_new_tokens"),
        ("greedy", {"seed": -1}, InputError, "seed"),
        ("greedy", {"max_new_tokens": None}, InputError, "max_new_tokens"),
        ("greedy", {"stop": "x"}, InputError, "stop"),
        ("greedy", {"stop": iter("x")}, InputError, "stop"),
        ("guided", {"variant": "official", "temperature": 0.5}, InputError, "'temperature' out"),
        ("guided", {"variant": "official", "top_k": 3}, InputError, "'top_k' out"),
        (["greedy"], {}, UnknownNameError, "strategy"),
        ("aarf", {"preset": ["paper"]}, UnknownNameError, "preset"),
        ("greedy", {"tau": 0.4}, InputError, "choose 'aarf'"),
        ("aarf", {"preset": "papr"}, UnknownNameError, "paper"),
        ("aarf", {"alpha": -1}, InputError, "alpha"),
        ("aarf", {"tau": float("nan")}, InputError, "tau"),
        ("aarf", {"passes": 3}, InputError, "passes"),
        ("aarf", {"passes": 1, "cache": "plain"}, InputError, "read once"),
        ("aarf", {}, InputError, "redeep-token"),
    ],
)
def test_wrong_options_are_refused(scopes, strategy, options, error, said):
    with pytest.raises(error, match=said):
        scopes["perplexity"].generate(QUESTION, PASSAGES, strategy, **options)


def test_numbers_of_numpy_leave_a_log_that_can_be_written(scopes):
    options = {"max_new_tokens": np.int64(4), "seed": np.int32(1), "temperature": np.float32(0.5), "n": np.int64(2)}
    done = scopes["perplexity"].generate(QUESTION, PASSAGES, "best-of-n", **options)
    assert json.loads(json.dumps(done.to_dict()))["log"]["max_new_tokens"] == 4


def test_without_passages_nothing_is_written(scopes, tiny):
    for passages in ([], [" "], ""):
        with pytest.raises(InputError, match="no passage"):
            scopes["perplexity"].generate(QUESTION, passages)
    with pytest.raises(InputError, match="contrast='pool'"):
        gs.Scope(tiny, "contrast", threshold=1.0, contrast="examples").generate(QUESTION, PASSAGES)


def test_samplers_by_default():
    assert Writing("greedy", seed=2).sampler == Sampler(seed=2)
    assert Writing("sample", top_k=5).sampler == Sampler(0.9, 0.95, 5)
    assert Writing("guided", temperature=0.5).sampler == Sampler(0.5, 0.95)
    assert Writing("guided", variant="official", seed=1).sampler == Sampler(1.0, seed=1)


@pytest.mark.slow
def test_every_strategy_on_the_embedded_model(embedded):
    scope = gs.Scope(embedded, "contrast", threshold=0.0)
    for strategy in ANY:
        options = {"max_new_tokens": 16, **SMALL.get(strategy, {})}
        done = scope.generate("When was the tower completed?", PASSAGES, strategy, **options)
        assert done.text.strip() and replay(done.log, embedded.tokenizer) == done.text
        assert done.verdict.outcome == "scored", done.verdict.message
        if strategy == "guided":
            again = scope.generate("When was the tower completed?", PASSAGES, strategy, **options)
            assert again.text == done.text and again.log.ids == done.log.ids
        if strategy == "greedy":
            assert "1889" in done.text
            assert done.verdict.score == pytest.approx(
                scope.score("When was the tower completed?", PASSAGES, done.text).score, abs=0.5
            )


def test_drafts_and_verdict_have_one_random_document(tiny):
    drafts = []
    scope = gs.Scope(tiny, "contrast", threshold=1.0)
    done = scope.generate(QUESTION, PASSAGES, "sample", max_new_tokens=40, on_draft=drafts.append)
    assert drafts and {draft.contrast["begins"] for draft in drafts} == {done.verdict.contrast["begins"]}
