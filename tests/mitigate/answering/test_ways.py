"""AARF through Scope.generate, and verdicts on answers that are still being written."""

from __future__ import annotations

import json

import pytest

import groundscope as gs
from groundscope.detectors.learned.redeep import ReDeEPToken
from groundscope.errors import InputError, PrerequisiteError
from groundscope.mitigate.aarf.aarf import PAPER, SIGNALS, Preset, aarf
from groundscope.mitigate.writing.decisions import DecisionLog, replay
from groundscope.mitigate.writing.session import Session
from groundscope.reading import Reader
from groundscope.trace.traced import TracedExample

QUESTION = "When was it completed?"
PASSAGES = ["The tower was completed in 1889.", "Bees make honey."]
ANSWERS = [
    "It was completed in 1889.",
    "It was finished by bees in 1901.",
    "In 1889, the tower.",
    "Honey makes towers.",
]


@pytest.fixture(scope="module")
def redeep(tiny):
    examples = [
        gs.Example(
            QUESTION, (f"{PASSAGES[0]} {number}", PASSAGES[1]), text, id=str(number),
            labels=(gs.Label(0, len(text), "made up"),) if number % 2 else (), label_kind="response",
        )
        for number, text in enumerate(ANSWERS * 3)
    ]  # fmt: skip
    detector = ReDeEPToken(heads=3, layers=2)
    read = Reader(tiny, [detector], fingerprint=True).read(examples)
    return detector.fit([TracedExample(one, traces[0]) for one, traces in zip(examples, read, strict=True)])


@pytest.fixture(scope="module")
def scope(tiny, redeep):
    return gs.Scope(tiny, redeep, threshold=0.5)


@pytest.mark.parametrize("options", [{}, {"passes": 1}, {"cache": "changed"}, {"temperature": 0.9}])
def test_text_verdict_and_log_agree(tiny, scope, options):
    said: list[str] = []
    done = scope.generate(
        QUESTION, PASSAGES, "aarf", max_new_tokens=12, tau=-1e6, seed=2, on_text=said.append, **options
    )
    assert done.text == done.verdict.response == "".join(said) == replay(done.log, tiny.tokenizer)
    assert (done.strategy, done.log.strategy, done.log.detector) == ("aarf", "aarf", "redeep-token")
    settings = done.log.settings
    assert (settings["alpha"], settings["beta"], settings["tau"]) == (PAPER.alpha, PAPER.beta, -1e6)
    edited = [step["edited"] for step in settings["steps"]]
    assert len(edited) >= len(done.log.ids) and all(edited[1:])
    assert DecisionLog.from_dict(json.loads(json.dumps(done.to_dict(), allow_nan=False))["log"]) == done.log
    # The verdict is the unchanged model's, whatever the cache holds.
    if options.get("passes") == 1 or "cache" in options:
        assert done.verdict.tokens == scope.score(QUESTION, PASSAGES, done.text).tokens
        return
    trace = tiny.trace(_prompted(tiny, done.log.ids), list(scope.detector.signals))
    want = scope.detector.token_scores(trace)
    kept = [token.score for token in done.verdict.tokens]
    assert kept == pytest.approx(list(want[: len(kept)]), rel=1e-3, abs=1e-3)


def _prompted(lm, ids):
    prompt = lm.renderer().prompt(QUESTION, PASSAGES)
    return gs.Layout.from_ids(prompt.prompt_ids, ids, passages=prompt.passages, header=prompt.header)


def test_it_is_what_the_function_writes(tiny, scope, redeep):
    done = scope.generate(QUESTION, PASSAGES, "aarf", max_new_tokens=12, preset="code", tau=0.0)
    session = Session(tiny, tiny.renderer().prompt(QUESTION, PASSAGES), SIGNALS)
    preset = Preset(1.2, 0.8, 0.0)
    pieces = [token.piece for token in aarf(session, redeep, preset, max_new_tokens=12)]
    assert "".join(pieces) == done.text
    plain = scope.generate(QUESTION, PASSAGES, "aarf", max_new_tokens=12, tau=1e6)
    assert plain.text == scope.generate(QUESTION, PASSAGES, max_new_tokens=12).text
    assert not any(step["edited"] for step in plain.log.settings["steps"])


def test_what_cannot_serve_is_refused_before_the_prompt_is_read(tiny):
    read: list[object] = []
    handle = tiny.anatomy.decoder.register_forward_pre_hook(lambda *_: read.append(1))
    try:
        with pytest.raises(InputError, match="groundscope train redeep-token"):
            gs.Scope(tiny, "perplexity", threshold=1.0).generate(QUESTION, PASSAGES, "aarf")
        with pytest.raises(PrerequisiteError):
            gs.Scope(tiny, ReDeEPToken(), threshold=1.0)
    finally:
        handle.remove()
    assert not read


@pytest.mark.parametrize("strategy", ["greedy", "guided", "aarf"])
def test_drafts_are_verdicts_on_what_is_written_so_far(scope, strategy):
    drafts: list[gs.Verdict] = []
    done = scope.generate(QUESTION, PASSAGES, strategy, max_new_tokens=40, on_draft=drafts.append)
    assert drafts and all(done.text.startswith(draft.response) for draft in drafts)
    lengths = [len(draft.response) for draft in drafts]
    assert lengths == sorted(set(lengths))
    for draft in drafts:
        # A token's score may still change with the one behind it, but not what lies further back.
        count = max(0, len(draft.tokens) - 2)
        scores = [token.score for token in draft.tokens[:count]]
        assert scores == pytest.approx([token.score for token in done.verdict.tokens[:count]], rel=1e-4, abs=1e-5)


def test_a_detector_of_finished_texts_has_no_drafts(tiny):
    drafts: list[gs.Verdict] = []
    scope = gs.Scope(tiny, "novelty", threshold=1.0)
    assert scope.generate(QUESTION, PASSAGES, max_new_tokens=30, on_draft=drafts.append).text
    assert not drafts


def test_drafts_and_abstaining_do_not_go_together(scope):
    with pytest.raises(InputError, match="on_draft"):
        scope.generate(QUESTION, PASSAGES, abstain="refuse", on_draft=print)
