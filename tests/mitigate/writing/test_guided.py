"""Guided decoding: one batch from one prefix, the lowest score stays, and every way a chunk may end."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import groundscope as gs
from groundscope.detectors.base import Detector
from groundscope.detectors.learned.lookback_lens import LookbackLens
from groundscope.detectors.registry import from_name
from groundscope.errors import ContextTooLongError, InputError, LayoutError, PrerequisiteError
from groundscope.mitigate.writing.decisions import DecisionLog, replay
from groundscope.mitigate.writing.generate import generate
from groundscope.mitigate.writing.guided import guided
from groundscope.mitigate.writing.judging import stretch_score
from groundscope.mitigate.writing.sampler import Sampler
from groundscope.mitigate.writing.session import Session
from groundscope.reading import Reader

QUESTION, PASSAGES = "When was it completed?", ["The tower was completed in 1889.", "Bees make honey."]
DRAWN = Sampler(temperature=1.0, top_p=0.95, seed=4)


class ById(Detector):
    """Scores a token by its id, through a table; what is not in it gets the id itself."""

    name, summary, reference = "by-id", "for tests", "none"

    def __init__(self, table: dict[int, float] | None = None) -> None:
        self.table = table
        self.seen: list[int] = []

    @property
    def signals(self):
        return ("token_logprob",)

    def token_scores(self, trace):
        self.seen.append(trace.tokens)
        table = self.table or {}
        return np.array([table.get(int(i), float(i)) for i in trace.layout.response_ids])


@pytest.fixture(scope="module")
def prompt(tiny):
    return tiny.renderer().prompt(QUESTION, PASSAGES)


@pytest.fixture(scope="module")
def lens(tiny):
    """A probe that has learnt from what the tiny model reads."""
    texts = ["It was completed in 1889.", "It stands on a river in the northern sea.", "Bees make honey from nectar."]
    examples = [
        gs.Example(
            "When?", (PASSAGES[0],), text, id=f"{i}{j}", source_id=f"{i}{j}", label_kind="span",
            labels=(gs.Label(0, 9 + j),) if i else (),
        )
        for i, text in enumerate(texts) for j in range(3)
    ]  # fmt: skip
    detector = LookbackLens()
    return detector.fit(list(Reader(tiny, [detector], fingerprint=True).read_many(examples)))


def session_of(lm, detector, prompt):
    return Session(lm, prompt, detector.signals)


def run(session, detector, **options):
    answer = guided(session, detector, **{"sampler": DRAWN, "candidates": 4, "chunk": 5} | options)
    steps = list(answer)
    return answer, steps


def test_probes_score_the_mean_features_of_the_chunk(tiny, prompt, lens):
    session = session_of(tiny, lens, prompt)
    list(generate(session, DRAWN, 11))
    trace = session.trace(0)
    features = trace["lookback_ratio"].reshape(trace.tokens, -1)[4:9].mean(axis=0, keepdims=True)
    want = 1 / (1 + np.exp(-lens.probe_.decision(features)[0]))
    assert stretch_score(lens, trace, 4, 9) == pytest.approx(want, rel=1e-5)
    perplexity = from_name("perplexity")
    read = tiny.trace(trace.layout, perplexity.signals)
    assert stretch_score(perplexity, read, 4, 9) == pytest.approx(perplexity.token_scores(read)[4:9].mean())


def test_candidates_are_one_batch_and_the_prompt_is_read_once(tiny, prompt, lens):
    run(session_of(tiny, lens, prompt), lens, max_new_tokens=2)  # a model is tried out when it first writes
    session = session_of(tiny, lens, prompt)
    shapes = []
    handle = tiny.anatomy.decoder.register_forward_pre_hook(
        lambda _m, _a, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    try:
        answer, _ = run(session, lens, max_new_tokens=12)
    finally:
        handle.remove()
    assert shapes == [(4, 1)] * 12
    assert session.tokens == 0 and answer.session.size == 1
    want = tiny.trace(answer.session.trace(0).layout, lens.signals)
    np.testing.assert_allclose(answer.session.trace(0)["lookback_ratio"], want["lookback_ratio"], rtol=1e-3, atol=1e-5)


def test_one_candidate_is_plain_sampling(tiny, prompt):
    detector = ById()
    answer, steps = run(session_of(tiny, detector, prompt), detector, candidates=1, max_new_tokens=17)
    plain = Session(tiny, prompt)
    list(generate(plain, DRAWN, 17))
    assert answer.session.ids(0) == plain.ids(0)
    assert {step.decision.basis for step in steps} == {"only"} and not detector.seen
    greedy, _ = run(session_of(tiny, detector, prompt), detector, candidates=1, sampler=Sampler(), max_new_tokens=9)
    plain = Session(tiny, prompt)
    list(generate(plain, Sampler(), 9))
    assert greedy.session.ids(0) == plain.ids(0)


@given(candidates=st.integers(1, 4), chunk=st.integers(1, 9), budget=st.integers(1, 14))
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_budget_is_exact(tiny, prompt, candidates, chunk, budget):
    detector = ById()
    answer, steps = run(
        session_of(tiny, detector, prompt), detector, candidates=candidates, chunk=chunk, max_new_tokens=budget
    )
    assert answer.session.tokens == budget and len(steps) == -(-budget // chunk)
    assert [len(step.decision.taken.ids) for step in steps[:-1]] == [chunk] * (len(steps) - 1)
    assert replay(answer.log, tiny.tokenizer) == answer.text


def test_identical_candidates_are_not_scored_and_ties_take_the_first(tiny, prompt):
    detector = ById()
    same = Sampler(temperature=1.0, top_k=1, seed=1)
    _, steps = run(session_of(tiny, detector, prompt), detector, sampler=same, max_new_tokens=8)
    assert {(step.decision.basis, step.decision.chosen) for step in steps} == {("identical", 0)}
    assert not detector.seen and all(item.score is None for step in steps for item in step.decision.candidates)
    flat = ById(dict.fromkeys(range(500), 0.5))
    _, steps = run(session_of(tiny, flat, prompt), flat, max_new_tokens=8)
    assert {(step.decision.basis, step.decision.chosen) for step in steps} == {("score", 0)}


def with_end(make_tiny, number, at):
    """A tiny model whose answers end with what candidate ``number`` draws as its token ``at``."""
    lm = make_tiny()
    layout = lm.renderer().prompt(QUESTION, PASSAGES)
    branches = Session(lm, layout).fork(4)
    list(generate(branches, DRAWN, 5, draws=DRAWN.draws(4, 0)))
    ids = [branches.ids(i) for i in range(4)]
    end = ids[number][at]
    lm.model.generation_config.eos_token_id = [end]
    return lm, layout, end, [each[: each.index(end)] if end in each else each for each in ids]


def test_a_short_candidate_is_scored_over_its_own_tokens_and_ends_the_answer(make_tiny):
    lm, layout, end, ids = with_end(make_tiny, 2, 3)
    assert len(ids[2]) == 3
    low = ById(dict.fromkeys(ids[2], -1000.0) | {end: 10**6})
    answer, steps = run(Session(lm, layout, low.signals), low, max_new_tokens=40)
    item = steps[0].decision.candidates[2]
    assert (item.ids, item.ended, item.score) == (tuple(ids[2]), "end", -1000.0)
    assert len(steps) == 1 and answer.session.ended(0) == "end" and answer.session.ids(0) == ids[2]
    assert replay(answer.log, lm.tokenizer) == answer.text
    official, _ = run(
        Session(lm, layout, low.signals), low, max_new_tokens=40, variant="official", sampler=Sampler(1.0, seed=4)
    )
    for each in official.decisions[0].candidates:
        if each.ended == "end":  # the end of text is one of its tokens
            want = np.mean([*(low.table.get(i, float(i)) for i in each.ids), 10**6])
            assert each.score == pytest.approx(want)


def test_a_candidate_that_ends_at_once_is_scored_by_what_ended_it(make_tiny):
    lm, layout, end, ids = with_end(make_tiny, 1, 0)
    assert ids[1] == []
    for score, wins in ((-1000.0, True), (10.0**6, False)):
        detector = ById({end: score})
        answer, steps = run(Session(lm, layout, detector.signals), detector, max_new_tokens=5)
        item = steps[0].decision.candidates[1]
        assert (item.ids, item.text, item.ended, item.score) == ((), "", "end", score)
        assert (steps[0].decision.chosen == 1) == wins
        assert (answer.session.ended(0) == "end" and answer.text == "") == wins


def test_where_all_candidates_end_the_answer_ends(make_tiny):
    lm = make_tiny()
    layout = lm.renderer().prompt(QUESTION, PASSAGES)
    lm.model.generation_config.eos_token_id = list(range(lm.model.config.vocab_size))
    detector = ById()
    answer, steps = run(Session(lm, layout, detector.signals), detector, max_new_tokens=20)
    assert [(s.decision.basis, s.piece) for s in steps] == [("identical", "")] and answer.session.ended(0) == "end"
    assert answer.text == "" == replay(answer.log, lm.tokenizer)


def test_stop_strings_end_also_across_chunks(tiny, prompt):
    detector = ById()
    free, _ = run(session_of(tiny, detector, prompt), detector, candidates=1, max_new_tokens=30)
    offsets, text = free.session.offsets(0), free.text
    border = offsets[9][1]
    for start, end in ((border - 1, border + 2), (offsets[4][1] - 1, offsets[5][1]), (offsets[6][0], offsets[8][1])):
        stop = text[start:end]
        answer, steps = run(session_of(tiny, detector, prompt), detector, candidates=1, max_new_tokens=30, stop=[stop])
        kept = text[: text.index(stop)]
        assert answer.session.ended(0) == "stop" and answer.text == kept == "".join(s.piece for s in steps)
        assert replay(answer.log, tiny.tokenizer) == kept


def test_a_stop_string_that_began_in_an_earlier_chunk_is_scored_by_what_ended_it(tiny, prompt):
    detector = ById()
    for seed in range(20):
        drawn = Sampler(1.0, 0.95, seed=seed)
        first, _ = run(session_of(tiny, detector, prompt), detector, sampler=drawn, max_new_tokens=5)
        _, steps = run(session_of(tiny, detector, prompt), detector, sampler=drawn, max_new_tokens=6)
        early = {number for item in steps[0].decision.candidates for number in item.ids}
        found = [item for item in steps[1].decision.candidates if item.text.strip() and item.text.isascii()]
        if found and found[0].ids[0] not in early and first.session.tokens == first.session.length(0):
            break
    stop, token = first.text[-1] + found[0].text, found[0].ids[0]
    for score, wins in ((-1000.0, True), (10.0**6, False)):
        table = ById({token: score})
        answer, steps = run(session_of(tiny, table, prompt), table, sampler=drawn, max_new_tokens=6, stop=[stop])
        assert steps[0].decision == first.decisions[0]
        cut = next(item for item in steps[1].decision.candidates if item.ended == "stop")
        assert (cut.ids, cut.text, cut.score) == ((), "", score) and cut.cut >= 1
        assert (answer.session.ended(0) == "stop") == wins
        assert answer.text == "".join(step.piece for step in steps) == replay(answer.log, tiny.tokenizer)
        assert (answer.text == first.text[:-1]) == wins


def test_the_log_survives_json_and_the_seed_decides(tiny, prompt, lens):
    one, _ = run(session_of(tiny, lens, prompt), lens, max_new_tokens=15)
    two, _ = run(session_of(tiny, lens, prompt), lens, max_new_tokens=15)
    other, _ = run(session_of(tiny, lens, prompt), lens, max_new_tokens=15, sampler=Sampler(1.0, 0.95, seed=5))
    assert one.log == two.log and one.text == two.text != other.text
    assert DecisionLog.from_dict(json.loads(json.dumps(one.log.to_dict()))) == one.log
    assert one.log.settings == {"candidates": 4, "chunk": 5, "variant": "paper"}
    assert (one.log.detector, one.log.model, one.log.sampler) == ("lookback-lens", "tiny", DRAWN)


def test_text_that_is_there_goes_on_and_replays(tiny, prompt):
    detector = ById()
    session = session_of(tiny, detector, prompt)
    list(generate(session, DRAWN, 6))
    answer, steps = run(session, detector, max_new_tokens=7)
    assert answer.session.tokens == 13 and answer.text.startswith(session.text(0))
    assert session.text(0) + "".join(step.piece for step in steps) == answer.text
    assert replay(answer.log, tiny.tokenizer) == answer.text


def test_official_is_what_the_released_code_does(tiny, prompt):
    detector = ById()
    session = session_of(tiny, detector, prompt)
    answer = guided(session, detector, variant="official", candidates=2, chunk=5, max_new_tokens=13)
    list(answer)
    assert answer.session.tokens == 10 and answer.log.sampler == Sampler(1.0) and answer.log.max_new_tokens == 10
    with pytest.raises(InputError, match="warps nothing"):
        guided(session, detector, variant="official", sampler=Sampler(0.9, 0.95))


def test_contrast_signals_need_contrast_prompts(tiny, prompt):
    detector = from_name("contrast")
    with_documents = tiny.renderer().prompt(QUESTION, PASSAGES, [["The river rises in the mountains."]])
    _answer, steps = run(session_of(tiny, detector, with_documents), detector, max_new_tokens=10)
    assert {step.decision.basis for step in steps} == {"score"}
    with pytest.raises(LayoutError):
        session_of(tiny, detector, prompt)


@pytest.mark.parametrize(
    ("name", "signal"), [("redeep-chunk", "chunk_context_score"), ("p-true", "p_true"), ("length", "response_words")]
)
def test_what_cannot_be_had_online_is_refused_by_name(tiny, prompt, name, signal):
    detector = from_name(name)
    if hasattr(detector, "check_fitted"):
        detector.fingerprint_ = {}
    session = Session(tiny, prompt)
    with pytest.raises(InputError, match=f"{name}.*{signal}"):
        guided(session, detector)
    assert session.tokens == 0


def test_wrong_use_is_refused_before_anything_is_written(tiny, prompt, make_tiny):
    detector = ById()
    session = session_of(tiny, detector, prompt)
    for options, said in (
        ({"candidates": 0}, "candidates"), ({"chunk": 0}, "chunk"), ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"variant": "mine"}, "variant"), ({"sampler": Sampler()}, "must draw tokens"), ({"stop": "x"}, "stop"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=said):
            guided(session, detector, **options)
    with pytest.raises(InputError, match="does not compute"):
        guided(Session(tiny, prompt, ["lookback_ratio"]), detector)
    with pytest.raises(InputError, match="one sequence"):
        guided(session.fork(2), detector)
    with pytest.raises(PrerequisiteError, match="must learn"):
        guided(session, LookbackLens())
    with pytest.raises(InputError, match="must be a Detector"):
        guided(session, "perplexity")
    small = make_tiny(context=len(prompt.prompt_ids) + 10)
    with pytest.raises(ContextTooLongError, match="lower max_new_tokens"):
        guided(Session(small, prompt, detector.signals), detector, max_new_tokens=11)
    assert session.tokens == 0


@pytest.mark.parametrize("wrong", [np.zeros(2), np.full(400, np.nan), "raise"])
def test_a_detector_that_fails_is_named_and_the_answer_stands(tiny, prompt, wrong):
    class Broken(ById):
        name = "broken"

        def token_scores(self, trace):
            if trace.tokens <= 5:
                return super().token_scores(trace)
            if isinstance(wrong, str):
                raise RuntimeError("no idea")
            return wrong if len(wrong) < 400 else wrong[: trace.tokens]

    detector = Broken()
    answer = guided(session_of(tiny, detector, prompt), detector, sampler=DRAWN, candidates=3, chunk=5)
    next(answer)
    kept = answer.session.ids(0)
    with pytest.raises(InputError, match="'broken'"):
        next(answer)
    assert answer.session.ids(0) == kept and len(answer.decisions) == 1
    assert tiny.model.config._attn_implementation != "groundscope"


def test_a_candidate_that_only_asks_is_passed_over(tiny, prompt, monkeypatch):
    session, detector = session_of(tiny, ById(), prompt), ById()
    plain, _ = run(session, detector, max_new_tokens=5)
    best = plain.decisions[0].taken
    heard = []

    def asks(text, question):
        heard.append(question)
        return text == best.text

    monkeypatch.setattr("groundscope.mitigate.writing.guided.only_asks", asks)
    answer, _ = run(session, detector, max_new_tokens=5)
    (decision,) = answer.decisions
    assert set(heard) == {QUESTION}
    assert all((item.score is None) == (item.text == best.text) for item in decision.candidates)
    assert decision.taken.text != best.text and decision.basis == "score"
    others = [item.score for item in plain.decisions[0].candidates if item.text != best.text]
    assert decision.taken.score == min(others)
    assert DecisionLog.from_dict(json.loads(json.dumps(answer.log.to_dict()))) == answer.log
    official, _ = run(session, detector, max_new_tokens=5, variant="official", sampler=Sampler(1.0, seed=4))
    assert all(item.score is not None for item in official.decisions[0].candidates)


def test_where_all_candidates_ask_their_scores_decide(tiny, prompt, monkeypatch):
    session = session_of(tiny, ById(), prompt)
    plain, _ = run(session, ById(), max_new_tokens=10)
    monkeypatch.setattr("groundscope.mitigate.writing.guided.only_asks", lambda text, question: True)
    answer, _ = run(session, ById(), max_new_tokens=10)
    assert answer.decisions == plain.decisions


@pytest.mark.slow
def test_the_question_is_not_written_back(embedded):
    """Beside the passage "the tower" for "it" is the best supported word there is."""
    scope = gs.Scope(embedded, threshold=0.0)
    done = scope.generate(QUESTION, PASSAGES[:1], strategy="guided", seed=0, max_new_tokens=24)
    asked = [item for decision in done.log.decisions for item in decision.candidates if item.score is None]
    assert any(item.text.endswith("?") for item in asked)
    assert not done.text.endswith("?") and not done.text.startswith("When was")
