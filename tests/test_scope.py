"""Text in, verdicts out: outcomes, streams, random documents, long contexts."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import groundscope as gs
from groundscope.data.contrast import neutral_passages
from groundscope.errors import InputError, UnknownNameError
from groundscope.text.visible import content_of
from groundscope.text.words import word_spans
from reference import families

QUESTION = "When was it completed?"
PASSAGES = ["The tower was completed in 1889.", "It was built by the engineers of the company."]
RESPONSE = "It was completed in 1887. The engineers built it."


def records(count: int) -> list[dict]:
    return [
        {
            "id": f"r{i}",
            "question": QUESTION,
            "context": [f"The river number {i} rises in the mountains {i} and flows north."],
            "response": f"The river {i} flows into the sea.",
        }
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def scope(tiny):
    return gs.Scope(tiny, threshold=0.1)


@pytest.fixture(scope="module")
def perplexity(tiny):
    return gs.Scope(tiny, "perplexity", threshold=1.0)


def check_whole(verdict: gs.Verdict) -> None:
    """What holds for every verdict with a score."""
    response = verdict.response
    assert verdict.outcome in ("scored", "partial")
    assert np.isfinite(verdict.score) and verdict.flagged == (verdict.score >= verdict.threshold.response)
    borders = {edge for span in word_spans(response) for edge in span}
    for piece in (*verdict.tokens, *verdict.spans, *verdict.sentences):
        assert response[piece.start : piece.end] == piece.text
    for span in verdict.spans:
        assert span.start in borders and span.end in borders
        assert sum(e.weight for e in span.evidence) <= 1 + 1e-6
        assert all(0 <= e.passage < len(verdict.passages) for e in span.evidence)
    covered = {i for s in verdict.sentences for i in range(s.start, s.end)}
    assert all(i in covered for i, char in enumerate(response) if not char.isspace())
    scored = {i for t in verdict.tokens for i in range(t.start, t.end)} | {
        i for hole in verdict.unscored for i in range(hole.start, hole.end)
    }
    assert all(i in scored for i, char in enumerate(response) if not char.isspace())
    assert gs.Verdict.from_dict(json.loads(json.dumps(verdict.to_dict()))) == verdict


@pytest.mark.slow
def test_the_six_lines(embedded):
    scope = gs.Scope.from_pretrained("smollm2-135m")
    verdict = scope.score(
        question="When was it completed?",
        passages=["The tower was completed in 1889."],
        response="It was completed in 1887.",
    )
    check_whole(verdict)
    assert verdict.outcome == "scored" and verdict.detector == "contrast" and verdict.model == "smollm2-135m"
    assert "1887" in str(verdict) and "1887" in verdict.to_html()
    right = scope.score("When was it completed?", ["The tower was completed in 1889."], "It was completed in 1889.")
    assert right.score < verdict.score


def test_a_verdict_on_a_tiny_model(scope, tiny):
    verdict = scope.score(QUESTION, PASSAGES, RESPONSE)
    check_whole(verdict)
    assert verdict.outcome == "scored" and verdict.message == ""
    assert verdict.question == QUESTION and verdict.passages == tuple(PASSAGES) and verdict.response == RESPONSE
    assert verdict.contrast == {"source": "pool", "which": None, "seed": 0}
    layout = tiny.renderer().layout(gs.Example(QUESTION, PASSAGES, RESPONSE))
    want = tiny.trace(layout, ["token_logprob"])["token_logprob"]
    plain = gs.Scope(tiny, "perplexity", threshold=0.1).score(QUESTION, PASSAGES, RESPONSE)
    np.testing.assert_allclose([token.score for token in plain.tokens], -want, rtol=1e-4)
    assert plain.contrast is None and plain.score == pytest.approx(-want.mean(), rel=1e-4)


def test_an_example_and_a_bare_passage_are_scored_alike(scope):
    example = gs.Example(QUESTION, (PASSAGES[0],), RESPONSE, id="7")
    one, other = scope.score(example=example), scope.score(QUESTION, PASSAGES[0], RESPONSE)
    assert one.id == "7" and other.id is None and one.tokens == other.tokens
    with pytest.raises(InputError, match="Got both"):
        scope.score(QUESTION, example=example)
    with pytest.raises(InputError, match="'response' must be a string"):
        scope.score(QUESTION, PASSAGES, None)
    with pytest.raises(InputError, match="lone surrogate"):
        scope.score(QUESTION, PASSAGES, "\ud800")


def test_evidence_names_the_passage(tiny):
    scope = gs.Scope(tiny, threshold=-1e6)
    for passages in (PASSAGES[:1], PASSAGES, [*PASSAGES, "Bees make honey.", "The sea is deep.", "Rome is old."]):
        verdict = scope.score(QUESTION, passages, RESPONSE)
        (span,) = verdict.spans
        assert 1 <= len(span.evidence) <= min(3, len(passages))
        total = sum(e.weight for e in span.evidence)
        assert total == pytest.approx(1) if len(passages) <= 3 else total < 1
    only = scope.score(QUESTION, ["  ", PASSAGES[0]], RESPONSE).spans[0].evidence
    assert max(only, key=lambda e: e.weight).passage == 1
    assert all(
        not span.evidence
        for span in gs.Scope(tiny, threshold=-1e6, evidence=False).score(QUESTION, PASSAGES, RESPONSE).spans
    )


@pytest.mark.parametrize(
    ("passages", "response", "outcome"),
    [
        (PASSAGES, "", "no_answer"),
        (PASSAGES, " \n\t\u3000 ", "no_answer"),
        (PASSAGES, "I don't know.", "no_answer"),
        ([], "", "no_answer"),
        ([], RESPONSE, "no_context"),
        (["", "  "], RESPONSE, "no_context"),
        ("", RESPONSE, "no_context"),
        (["word " * 40_000], RESPONSE, "too_long"),
        (PASSAGES, "word " * 5_000, "too_long"),
    ],
)
def test_what_cannot_be_scored_has_an_outcome_and_no_score(scope, passages, response, outcome):
    verdict = scope.score(QUESTION, passages, response)
    assert (verdict.outcome, verdict.score, verdict.flagged) == (outcome, None, None)
    assert verdict.message and not verdict.spans and not verdict.tokens
    assert [(u.start, u.end) for u in verdict.unscored] == ([(0, len(response))] if response else [])
    assert gs.Verdict.from_dict(verdict.to_dict()) == verdict
    if outcome == "too_long":
        assert "reads at most 2048" in verdict.message and "long_context='chunk'" in verdict.message


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(min_size=1, max_size=40), st.text(max_size=30), st.text(max_size=30))
def test_any_text_is_scored_or_says_why_not(scope, response, passage, question):
    verdict = scope.score(question, [passage, PASSAGES[0]], response)
    if content_of(response) != "words":
        assert verdict.outcome == "no_answer"
    else:
        check_whole(verdict)


@pytest.mark.parametrize(
    "response", ["東京は🎉です。", "a\x10b…c", "**999** million", "Paris, Paris!", "i ⭢ j", "<|im_end|>"]
)
def test_odd_texts_have_exact_offsets(scope, response):
    check_whole(scope.score(QUESTION, PASSAGES, response))


def test_wrong_options_are_refused(tiny):
    for options, message in (
        ({"long_context": "cut"}, "'long_context' parameter of Scope must be one of 'refuse', 'chunk'. Got 'cut'"),
        ({"contrast": "none"}, "'contrast' parameter of Scope must be one of 'auto', 'pool', 'examples'"),
        ({"batch_size": 0}, "'batch_size' parameter of Scope must be at least 1"),
        ({"threshold": float("nan")}, "'threshold' parameter of Scope must be a finite number"),
        ({"span_threshold": float("inf")}, "'span_threshold' parameter of Scope must be a finite number"),
        ({"seed": -1}, "'seed' parameter of Scope must be an integer of at least 0. Got -1"),
    ):
        with pytest.raises(InputError, match=message):
            gs.Scope(tiny, **options)
    with pytest.raises(UnknownNameError, match="Did you mean 'lumina'"):
        gs.Scope.from_pretrained("no/such-model", detector="luminar")
    with pytest.raises(InputError, match="without a tokenizer"):
        gs.Scope(gs.LanguageModel(families.build("llama")))


def test_a_stream_keeps_order_and_a_bad_record_harms_no_other(scope):
    items = records(7)
    items[3:3] = [{"id": "bad", "question": QUESTION}, {"id": 5, "response": 3}, "text", {"response": ""}]
    items.insert(1, gs.Example(QUESTION, ("The sea is deep.",), "It is deep.", id="example"))
    verdicts = list(scope.score_many(items))
    assert [v.id for v in verdicts] == ["r0", "example", "r1", "r2", "bad", "5", None, None, "r3", "r4", "r5", "r6"]
    assert [v.outcome for v in verdicts[4:8]] == ["failed"] * 3 + ["no_answer"]
    assert "'response'" in verdicts[4].message and "JSON object" in verdicts[6].message
    for verdict in (*verdicts[:4], *verdicts[8:]):
        check_whole(verdict)


def test_a_list_and_a_stream_of_fewer_than_the_look_ahead_agree(scope):
    items = records(9)
    assert list(scope.score_many(items)) == list(scope.score_many(iter(items)))
    assert list(scope.score_many([])) == list(scope.score_many(iter([]))) == []
    for single in (items[0], "text", gs.Example("q", ("p",), "r")):
        with pytest.raises(InputError, match="put it in a list"):
            list(scope.score_many(single))


def test_a_stream_is_read_no_further_than_the_look_ahead(perplexity):
    taken = []

    def stream():
        for record in records(200):
            taken.append(record["id"])
            yield record

    verdicts = perplexity.score_many(stream())
    assert not taken
    assert next(verdicts).id == "r0" and len(taken) <= 64
    for _ in range(64):
        last = next(verdicts)
    assert last.id == "r64" and len(taken) <= 128
    verdicts.close()


def test_batch_size_and_company_change_no_score(tiny):
    items = records(6)
    want = [gs.Scope(tiny, "perplexity", threshold=1.0).score(example=gs.Example.from_dict(item)) for item in items]
    for batch_size in (1, 4):
        got = list(gs.Scope(tiny, "perplexity", threshold=1.0, batch_size=batch_size).score_many(items))
        for one, other in zip(got, want, strict=True):
            np.testing.assert_allclose([t.score for t in one.tokens], [t.score for t in other.tokens], rtol=1e-4)


def test_repeated_identifiers_are_two_verdicts(scope):
    items = records(3)
    items[2]["id"] = items[0]["id"]
    verdicts = list(scope.score_many(items))
    assert [v.id for v in verdicts] == ["r0", "r1", "r0"]
    assert [v.response for v in verdicts] == [item["response"] for item in items]


def drawn(tiny, items, **options):
    verdicts = gs.Scope(tiny, threshold=0.1, **options).score_many(items)
    return {v.id: (dict(v.contrast), [round(t.score, 3) for t in v.tokens]) for v in verdicts}


def test_random_documents_come_from_the_other_examples_by_seed_and_not_by_order(tiny):
    items = records(12)
    want = drawn(tiny, items)
    assert all(info["source"] == "examples" and info["which"] != name for name, (info, _) in want.items())
    reordered = drawn(tiny, items[::-1])
    assert {name: info for name, (info, _) in reordered.items()} == {name: info for name, (info, _) in want.items()}
    for name, (_, scores) in want.items():
        np.testing.assert_allclose(reordered[name][1], scores, atol=2e-3)
    assert drawn(tiny, items) == want
    other = drawn(tiny, items, seed=1)
    assert [info["which"] for info, _ in other.values()] != [info["which"] for info, _ in want.values()]
    assert all(info["seed"] == 1 for info, _ in other.values())


def test_where_random_documents_come_from_is_a_choice(tiny):
    items = records(3)
    assert {info["source"] for info, _ in drawn(tiny, items, contrast="pool").values()} == {"pool"}
    assert {info["source"] for info, _ in drawn(tiny, items, contrast="examples").values()} == {"examples"}
    lonely = gs.Scope(tiny, threshold=0.1, contrast="examples").score(QUESTION, PASSAGES, RESPONSE)
    assert lonely.outcome == "failed" and "contrast='pool' or 'auto'" in lonely.message
    same = [{**items[0], "id": "a"}, {**items[0], "id": "b"}]
    assert {info["source"] for info, _ in drawn(tiny, same).values()} == {"pool"}
    others = [gs.Example("q", ("The sea is deep and blue.",), "r", id="sea")]
    given = list(gs.Scope(tiny, threshold=0.1).score_many(iter(items), others=others))
    assert {v.contrast["which"] for v in given} == {"sea"}


def test_nan_from_the_model_is_a_failure_of_that_example_only(make_tiny):
    lm = make_tiny(name="damaged")
    (first, _) = lm.tokenizer("é", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        lm.model.model.embed_tokens.weight[first] = float("nan")
    items = records(3)
    items[1]["response"] = "The café is open."
    verdicts = list(gs.Scope(lm, "perplexity", threshold=1.0).score_many(items))
    assert [v.outcome for v in verdicts] == ["scored", "failed", "scored"]
    assert "damaged produced NaN or infinity: signal" in verdicts[1].message
    assert verdicts[1].score is None and verdicts[1].flagged is None and verdicts[1].id == "r1"


LONG = [f"Note {i}. The river rises in the mountains and flows into the northern sea. " * 3 for i in range(6)]


def test_a_long_context_is_read_in_parts_and_the_best_part_counts(make_tiny):
    lm = make_tiny(context=400)
    example = gs.Example(QUESTION, (*LONG, PASSAGES[0]), RESPONSE)
    assert gs.Scope(lm, "perplexity", threshold=1.0).score(example=example).outcome == "too_long"
    verdict = gs.Scope(lm, "perplexity", threshold=1.0, long_context="chunk").score(example=example)
    check_whole(verdict)
    renderer = lm.renderer()
    parts = renderer.chunks(example)
    assert len(parts) > 1 and f"read in {len(parts)} prompts" in verdict.message
    assert sorted({number for _, numbers in parts for number in numbers}) == list(range(7))
    traces = lm.trace([renderer.layout(part) for part, _ in parts], ["token_logprob"])
    scores = np.stack([-trace["token_logprob"] for trace in traces])
    np.testing.assert_allclose([token.score for token in verdict.tokens], scores.min(axis=0), rtol=1e-4)
    assert (scores.argmin(axis=0) != scores[:, 0].argmin()).any()  # several parts take part
    assert verdict.outcome == "scored" and not verdict.unscored
    assert len(verdict.tokens) == traces[0].tokens


def test_a_passage_of_any_length_can_be_read_in_parts(make_tiny):
    lm = make_tiny(context=400)
    scope = gs.Scope(lm, threshold=-1e6, long_context="chunk")
    verdict = scope.score(QUESTION, ["The river rises in the mountains. " * 60, PASSAGES[0]], RESPONSE)
    check_whole(verdict)
    (span,) = verdict.spans
    assert {e.passage for e in span.evidence} <= {0, 1} and sum(e.weight for e in span.evidence) == pytest.approx(1)
    short = scope.score(QUESTION, PASSAGES, RESPONSE)
    assert "prompts" not in short.message
    assert scope.score(QUESTION, PASSAGES, "word " * 390).outcome == "too_long"


@pytest.mark.slow
def test_a_claim_is_supported_by_evidence_in_one_part_of_many(embedded, monkeypatch):
    monkeypatch.setattr(type(embedded), "max_length", property(lambda self: 420))
    scope = gs.Scope(embedded, threshold=0.0, long_context="chunk", evidence=False)
    filler = list(neutral_passages()[:8])
    claim = "The Eiffel Tower was completed in 1889."
    scores = {}
    for name, passages in (
        ("nowhere", filler),
        ("last", [*filler, "The Eiffel Tower was completed in 1889 in Paris."]),
        ("first", ["The Eiffel Tower was completed in 1889 in Paris.", *filler]),
    ):
        verdict = scope.score("When was the Eiffel Tower completed?", passages, claim)
        assert verdict.outcome == "scored" and "prompts" in verdict.message and not verdict.unscored
        scores[name] = verdict.score
    assert scores["last"] < scores["nowhere"] and scores["first"] < scores["nowhere"]


@pytest.mark.parametrize("length", [208, 2_080, 20_800])
def test_filler_never_makes_a_claim_silently_clean(make_tiny, length):
    filler = ("The river rises in the mountains. " * 700)[:length]
    for long_context in ("refuse", "chunk"):
        scope = gs.Scope(make_tiny(context=512), "perplexity", threshold=0.0, long_context=long_context)
        verdict = scope.score(QUESTION, [filler, PASSAGES[0]], RESPONSE)
        if verdict.outcome == "too_long":
            assert long_context == "refuse" and verdict.flagged is None and verdict.unscored
        else:
            check_whole(verdict)
            assert verdict.flagged and len(verdict.spans) > 0


def test_a_window_too_short_for_the_passages_is_reported(tiny_tokenizer):
    from transformers import AutoConfig, AutoModelForCausalLM

    config = families.FAMILIES["ministral"].config
    config = AutoConfig.for_model(
        "ministral", **{**config, "vocab_size": len(tiny_tokenizer), "max_position_embeddings": 2048}
    )
    lm = gs.LanguageModel(AutoModelForCausalLM.from_config(config).eval(), tiny_tokenizer, name="windowed")
    verdict = gs.Scope(lm, "perplexity", threshold=1.0).score(QUESTION, PASSAGES, RESPONSE)
    assert verdict.message == "1 of 3 attention layers have a window too short to see all passages."


def test_a_model_without_the_attention_interface_scores_without_evidence(tiny_tokenizer):
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model("bloom", **{**families.FAMILIES["bloom"].config, "vocab_size": len(tiny_tokenizer)})
    lm = gs.LanguageModel(AutoModelForCausalLM.from_config(config).eval(), tiny_tokenizer, name="old")
    verdict = gs.Scope(lm, threshold=-1e6).score(QUESTION, PASSAGES, RESPONSE)
    check_whole(verdict)
    assert verdict.spans and all(not span.evidence for span in verdict.spans)
