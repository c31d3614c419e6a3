"""Plain generation: the same tokens as transformers, seeds, ends, stop strings, budgets, cancellation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import groundscope as gs
from groundscope.errors import ContextTooLongError, InputError
from groundscope.lm.prompt.layout import Segment
from groundscope.mitigate.writing.generate import generate
from groundscope.mitigate.writing.sampler import Sampler
from groundscope.mitigate.writing.session import Session

SIGNALS = ["lookback_ratio", "aggtruth_js", "token_logprob", "passage_percentage"]
DRAWN = Sampler(temperature=1.0, top_p=0.95, seed=4)
QUESTION, PASSAGES = "When was it completed?", ["The tower was completed in 1889.", "Bees make honey."]


@pytest.fixture(scope="module")
def prompt(tiny):
    return tiny.renderer().prompt(QUESTION, PASSAGES)


def text_of(tokens, sequence=0):
    return "".join(token.piece for token in tokens if token.sequence == sequence)


def test_greedy_is_what_transformers_generates(tiny, prompt):
    session = Session(tiny, prompt)
    tokens = list(generate(session, max_new_tokens=24))
    ids = torch.from_numpy(prompt.prompt_ids)[None]
    want = tiny.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False)
    want = want[0, ids.shape[1] :].tolist()
    ended = tiny.tokenizer.eos_token_id in want
    assert [token.id for token in tokens] == (want[: want.index(tiny.tokenizer.eos_token_id)] if ended else want)
    assert session.ended(0) == ("end" if ended else None)


def test_the_prompt_is_that_of_the_finished_text(tiny, prompt):
    example = gs.Example(question=QUESTION, passages=tuple(PASSAGES), response="In 1889.")
    layout = tiny.renderer().layout(example, [["Bees."]])
    opened = tiny.renderer().prompt(QUESTION, PASSAGES, [["Bees."]])
    assert opened.response_length == 0 and opened.response is None
    np.testing.assert_array_equal(opened.prompt_ids, layout.prompt_ids)
    np.testing.assert_array_equal(opened.contrast_prompt_ids[0], layout.contrast_prompt_ids[0])
    assert (opened.passages, opened.header, opened.segments) == (layout.passages, layout.header, layout.segments[:-1])
    with pytest.raises(ContextTooLongError):
        tiny.renderer().prompt(QUESTION, PASSAGES, reserve=3000)


def test_pieces_spell_the_text_and_signals_are_those_of_the_trace(tiny, prompt):
    session = Session(tiny, prompt, SIGNALS)
    tokens = list(generate(session, DRAWN, 40))
    assert len(tokens) > 5
    trace = session.trace(0)
    assert trace.layout.response == tiny.tokenizer.decode(session.ids(0))
    assert trace.layout.segments[-1] == Segment("response", prompt.prompt_length, prompt.prompt_length + trace.tokens)
    assert text_of(tokens) == session.text(0)
    assert [token.number for token in tokens] == list(range(trace.tokens))
    want = tiny.trace(trace.layout, SIGNALS)
    for name in SIGNALS:
        got = np.stack([token.signals[name] for token in tokens])
        np.testing.assert_allclose(got, want[name], rtol=1e-4, atol=1e-5, err_msg=name)
    for (start, end), token in zip(trace.layout.response_offsets, tokens, strict=True):
        assert token.piece in ("", trace.layout.response[start:end])


def test_one_prompt_beside_others_is_written_as_alone(tiny):
    renderer = tiny.renderer()
    prompts = [renderer.prompt(QUESTION, PASSAGES), renderer.prompt("", ["Bees."]), renderer.prompt("Who?", PASSAGES)]
    session = Session(tiny, prompts, SIGNALS)
    tokens = list(generate(session, max_new_tokens=12))
    for sequence, prompt in enumerate(prompts):
        alone = Session(tiny, prompt, SIGNALS)
        own = list(generate(alone, max_new_tokens=12))
        assert session.ids(sequence) == alone.ids(0) and text_of(tokens, sequence) == text_of(own)
        np.testing.assert_allclose(
            session.trace(sequence)["lookback_ratio"], alone.trace(0)["lookback_ratio"], rtol=1e-3, atol=1e-5
        )


def test_seeds_decide_and_nothing_else_does(tiny, prompt):
    def written(sampler, copies=3):
        session = Session(tiny, prompt).fork(copies)
        torch.rand(7)  # other random numbers of the process
        list(generate(session, sampler, 10))
        return [session.ids(i) for i in range(copies)]

    torch.manual_seed(0)
    before = torch.get_rng_state()
    three = written(DRAWN)
    torch.set_rng_state(before)
    assert three == written(DRAWN) and three[:2] == written(DRAWN, 2)
    assert three != written(Sampler(temperature=1.0, top_p=0.95, seed=5))
    assert len({tuple(ids) for ids in three}) == 3
    torch.set_rng_state(before)
    session = Session(tiny, prompt)
    list(generate(session, DRAWN, 5))
    assert torch.equal(torch.get_rng_state(), before)


def test_in_pieces_as_in_one_go(tiny, prompt):
    whole = Session(tiny, prompt)
    list(generate(whole, DRAWN, 12))
    parts, draws = Session(tiny, prompt), DRAWN.draws(1)
    for count in (5, 4, 3):
        list(generate(parts, DRAWN, count, draws=draws))
    assert parts.ids(0) == whole.ids(0)


def ending(lm, layout, after):
    """Let a model's own greedy answer end at its token number ``after``."""
    session = Session(lm, layout)
    ids = [token.id for token in generate(session, max_new_tokens=12)]
    end = ids[after]
    lm.model.generation_config.eos_token_id = [end]
    return ids[: ids.index(end)]


@pytest.mark.parametrize("after", [0, 4])
def test_the_end_of_text_is_not_part_of_it(make_tiny, after):
    lm = make_tiny()
    layout = lm.renderer().prompt(QUESTION, PASSAGES)
    kept = ending(lm, layout, after)
    session = Session(lm, layout, SIGNALS)
    tokens = list(generate(session, max_new_tokens=12))
    assert [token.id for token in tokens] == kept == session.ids(0)
    assert session.ended(0) == "end"
    trace = session.trace(0)
    assert trace.tokens == len(kept) and trace["lookback_ratio"].shape[1:] == (3, 4)
    assert trace["aggtruth_js"].shape[1:] == (3, 4)
    with pytest.raises(InputError, match="All sequences of this session have ended"):
        session.feed([[5]])


def test_sequences_end_on_their_own(make_tiny):
    lm = make_tiny()
    layouts = [lm.renderer().prompt(QUESTION, PASSAGES), lm.renderer().prompt("Who?", PASSAGES[:1])]
    kept = ending(lm, layouts[0], 3)
    session = Session(lm, layouts, SIGNALS)
    tokens = list(generate(session, max_new_tokens=9))
    assert session.ids(0) == kept == [token.id for token in tokens if token.sequence == 0]
    alone = Session(lm, layouts[1], SIGNALS)
    list(generate(alone, max_new_tokens=9))
    assert session.ids(1) == alone.ids(0) and len(session.ids(1)) != len(kept)
    want = lm.trace(session.trace(0).layout, SIGNALS) if kept else None
    if want is not None:
        np.testing.assert_allclose(session.trace(0)["aggtruth_js"], want["aggtruth_js"], rtol=1e-3, atol=1e-4)


def test_stop_strings_end_before_themselves(tiny, prompt):
    free = Session(tiny, prompt)
    list(generate(free, DRAWN, 40))
    text = free.text(0)
    for start, length in ((3, 1), (6, 4), (len(text) - 5, 5)):
        stop = text[start : start + length]
        session = Session(tiny, prompt, SIGNALS)
        tokens = list(generate(session, DRAWN, 40, stop=["never in there", stop]))
        kept = text[: text.index(stop)]
        assert session.text(0) == kept == text_of(tokens) and session.ended(0) == "stop"
        assert len(tokens) == len(session.ids(0)) == session.trace(0).tokens
        offsets = session.trace(0).layout.response_offsets
        assert not len(offsets) or offsets.max() <= len(kept)


def test_text_that_may_be_a_stop_string_is_held_back(tiny, prompt):
    free = Session(tiny, prompt)
    list(generate(free, DRAWN, 40))
    stop = free.text(0)[10:22]
    session = Session(tiny, prompt)
    said = ""
    for token in generate(session, DRAWN, 40, stop=[stop]):
        said += token.piece
        assert len(said) <= 10
    assert said == free.text(0)[:10]


def test_left_early_everything_is_whole(tiny, prompt):
    def hooks():
        return [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in tiny.model.modules()]

    before = hooks()
    session = Session(tiny, prompt, SIGNALS)
    written = generate(session, DRAWN, 30)
    first = [next(written) for _ in range(4)]
    written.close()
    assert hooks() == before and tiny.model.config._attn_implementation != "groundscope"
    trace = session.trace(0)
    assert trace.tokens >= 4 and [token.id for token in first] == session.ids(0)[:4]
    np.testing.assert_allclose(
        trace["lookback_ratio"], tiny.trace(trace.layout, SIGNALS)["lookback_ratio"], rtol=1e-4, atol=1e-5
    )


def test_budgets_that_do_not_fit_are_refused_at_once(make_tiny):
    lm = make_tiny(context=100)
    layout = gs.Layout.from_ids(list(range(5, 95)), [])
    session = Session(lm, layout)
    with pytest.raises(ContextTooLongError, match="lower max_new_tokens"):
        generate(session, max_new_tokens=11)
    with pytest.raises(InputError, match="max_new_tokens"):
        generate(session, max_new_tokens=0)
    with pytest.raises(InputError, match="'stop' parameter"):
        generate(session, max_new_tokens=2, stop="text")
    assert session.tokens == 0
    assert len(list(generate(session, max_new_tokens=10))) <= 10


def test_without_a_tokenizer_there_are_ids_and_no_text(tiny, prompt):
    bare = gs.LanguageModel(tiny.model, name="bare")
    session = Session(bare, prompt, SIGNALS)
    tokens = list(generate(session, max_new_tokens=6))
    with_text = Session(tiny, prompt)
    list(generate(with_text, max_new_tokens=6))
    assert session.ids(0) == with_text.ids(0) and text_of(tokens) == session.text(0) == ""
    assert session.trace(0).layout.response is None


def test_candidates_are_written_as_one_batch_and_the_best_goes_on(tiny, prompt):
    session = Session(tiny, prompt, SIGNALS)
    widths = []
    handle = tiny.anatomy.decoder.register_forward_pre_hook(
        lambda _m, _a, kwargs: widths.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    try:
        for stage in range(3):
            branches = session.fork(4)
            list(generate(branches, DRAWN, 5, draws=DRAWN.draws(4, stage)))
            branches.keep(2)
            session = branches
    finally:
        handle.remove()
    assert set(widths) == {(4, 1)} and len(widths) == 15
    assert session.tokens == 15 and session.size == 1
    want = tiny.trace(session.trace(0).layout, SIGNALS)
    for name in SIGNALS:
        np.testing.assert_allclose(session.trace(0)[name], want[name], rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("sequence", [1, -1, "a", 0.0, None, True])
def test_a_sequence_that_is_not_there(tiny, prompt, sequence):
    session = Session(tiny, prompt)
    asked = [session.text, session.ids, session.length, session.ended, session.offsets, session.trace]
    for ask in [*asked, lambda number: session.end(number, "end"), lambda number: session.keep([number])]:
        with pytest.raises(InputError, match=r"Sequences are numbered 0 to 0.*Got \[?" + repr(sequence)):
            ask(sequence)
    assert session.ended(0) is None


def test_a_session_that_has_ended_is_not_written_to(tiny, prompt):
    session = Session(tiny, prompt)
    with pytest.raises(InputError, match="'reason' parameter of end must be one of 'end'"):
        session.end(0, "because")
    with pytest.raises(InputError, match=r"'sampler' parameter of generate must be a Sampler\. Got 'x'"):
        generate(session, "x", 5)
    session.end(0, "length")
    with pytest.raises(InputError, match="have ended"):
        generate(session, max_new_tokens=5)


@pytest.mark.parametrize("ids", [[[1.5]], torch.tensor([[1.0]]), [[True]], np.array([[2.5]])])
def test_only_whole_numbers_are_fed(tiny, prompt, ids):
    session = Session(tiny, prompt, ["token_logprob"])
    with pytest.raises(InputError, match="must hold whole numbers"):
        session.feed(ids)
    assert session.tokens == 0 and session.length(0) == 0


def test_what_was_fed_is_not_counted_as_prompt(make_tiny):
    lm = make_tiny(context=256)
    session = Session(lm, lm.renderer().prompt(QUESTION, PASSAGES))
    prompt_tokens = len(lm.renderer().prompt(QUESTION, PASSAGES).prompt_ids)
    session.feed([[5] * 20])
    with pytest.raises(ContextTooLongError) as caught:
        session.feed([[5] * 256])
    assert (caught.value.prompt_tokens, caught.value.response_tokens) == (prompt_tokens, 276)


def test_rolled_back_text_is_as_before(tiny, prompt):
    session = Session(tiny, prompt, SIGNALS)
    list(generate(session, DRAWN, 8))
    text, ids = session.text(0), session.ids(0)
    list(generate(session, DRAWN, 5, stop=[text[:1]]))
    session.roll_back(session.tokens - 8)
    assert (session.text(0), session.ids(0), session.ended(0)) == (text, ids, None)
