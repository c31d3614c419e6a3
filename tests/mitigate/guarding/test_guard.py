"""The streaming guard: the verdict of the whole text, whatever the pieces; what may be shown, and what is let go."""

from __future__ import annotations

import gc
import types
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import groundscope as gs
from groundscope.detectors.base import Detector
from groundscope.errors import ContextTooLongError, InputError
from groundscope.mitigate.guarding.events import Finished, Released, Scored, Stopped, Withheld
from groundscope.mitigate.guarding.guard import guard, guard_session
from groundscope.mitigate.writing.generate import generate
from groundscope.mitigate.writing.sampler import Sampler
from groundscope.mitigate.writing.session import Session

QUESTION = "When was it completed?"
PASSAGES = ("The tower was completed in 1889.", "Bees make honey.")
TEXT = "The tower cost 42 million, approx. 5 in all. It was completed in 1887! Bees made it.\n\nDr. Who said so, twice."
SENTENCES = [TEXT[:44], TEXT[45:70], TEXT[71:84], TEXT[86:]]
EVERYTHING = 1e9


@pytest.fixture(scope="module")
def scope(tiny):
    return gs.Scope(tiny, "entropy", threshold=4.0)


def cut(text, places):
    edges = [0, *sorted(places), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


def shown(events):
    return "".join(event.text for event in events if isinstance(event, Released))


def middle(scope, text=TEXT):
    """A threshold between the sentences' scores, and which of them are above it."""
    scores = [s.score for s in scope.score(QUESTION, PASSAGES, text).sentences]
    ordered = sorted(scores)
    line = (ordered[1] + ordered[2]) / 2
    return line, [score >= line for score in scores]


def assert_same(got, want, loose=1e-4):
    assert (got.outcome, got.response, got.flagged, got.detector) == (
        want.outcome, want.response, want.flagged, want.detector,
    )  # fmt: skip
    assert [(t.start, t.end) for t in got.tokens] == [(t.start, t.end) for t in want.tokens]
    for field in ("tokens", "spans", "sentences"):
        one, two = getattr(got, field), getattr(want, field)
        assert [(item.start, item.end) for item in one] == [(item.start, item.end) for item in two]
        np.testing.assert_allclose([i.score for i in one], [i.score for i in two], rtol=loose, atol=loose)
    if want.score is not None:
        assert got.score == pytest.approx(want.score, rel=loose, abs=loose)
    for one, two in zip(got.spans, want.spans, strict=True):
        assert [e.passage for e in one.evidence] == [e.passage for e in two.evidence]


@given(st.sets(st.integers(1, len(TEXT) - 1), max_size=30), st.sampled_from(["audit", "withhold"]))
@settings(max_examples=15, deadline=None)
def test_the_last_verdict_is_that_of_the_whole_text(scope, places, mode):
    events = list(guard(cut(TEXT, places), scope, QUESTION, PASSAGES, mode=mode, threshold=EVERYTHING))
    assert shown(events) == TEXT and isinstance(events[-1], Finished)
    assert_same(events[-1].verdict, scope.score(QUESTION, PASSAGES, TEXT))


def test_a_value_split_over_pieces_gives_the_same_spans(tiny):
    text = "It cost 42 million in all. The tower stands in Paris."
    scope = gs.Scope(tiny, "entropy", threshold=3.0, span_threshold=3.0)
    want = scope.score(QUESTION, PASSAGES, text)
    pieces = ["It cost 4", "2 million", " in all. The tower stands in Paris."]
    (*_, last) = guard(pieces, scope, QUESTION, PASSAGES)
    assert want.spans
    redacted = [(s.start, s.end, pytest.approx(s.score, rel=1e-4)) for s in want.spans]
    assert [(s.start, s.end, s.score) for s in last.verdict.spans] == redacted


def test_audit_shows_every_piece_at_once_and_scores_follow(scope):
    line, flags = middle(scope)
    read = []

    def pieces():
        for piece in cut(TEXT, range(5, len(TEXT), 7)):
            read.append(piece)
            yield piece

    stream, text, events = guard(pieces(), scope, QUESTION, PASSAGES, mode="audit", threshold=line), "", []
    for event in stream:
        events.append(event)
        text += event.text if isinstance(event, Released) else ""
        assert text == "".join(read)
    scored = [event for event in events if isinstance(event, Scored)]
    assert [TEXT[e.start : e.end] for e in scored] == SENTENCES and [e.flagged for e in scored] == flags
    assert text == TEXT and stream.flagged == 2 and not stream.clean
    assert events.index(scored[0]) < len(events) // 2
    np.testing.assert_allclose([e.score for e in scored], [s.score for s in events[-1].verdict.sentences], rtol=1e-4)


def test_withheld_sentences_are_never_shown(scope):
    line, flags = middle(scope)
    stream = guard(list(TEXT), scope, QUESTION, PASSAGES, threshold=line)
    events = list(stream)
    for sentence, flagged in zip(SENTENCES, flags, strict=True):
        assert (sentence in shown(events)) != flagged
    withheld = [(e.start, e.end) for e in events if isinstance(e, Withheld)]
    assert [TEXT[a:b] for a, b in withheld] == [s for s, flagged in zip(SENTENCES, flags, strict=True) if flagged]
    verdict, want = events[-1].verdict, scope.score(QUESTION, PASSAGES, TEXT)
    assert len(verdict.response) == len(TEXT) and "█" in verdict.response
    assert verdict.score == pytest.approx(want.score, rel=1e-4) and not stream.clean
    assert all(r.score is None or r.score < line for r in events if isinstance(r, Released))
    for start, end in withheld:
        assert_unreachable(TEXT[start:end], stream, events)
    gs.Verdict.from_dict(verdict.to_dict())


def strings_from(*roots):
    """All strings that can be reached from some objects, but for what modules, classes and functions hold."""
    seen, todo, found = set(), list(roots), []
    while todo:
        item = todo.pop()
        if id(item) in seen or isinstance(item, (types.ModuleType, type, types.FunctionType, torch.nn.Module)):
            continue
        seen.add(id(item))
        if isinstance(item, str):
            found.append(item)
        todo.extend(gc.get_referents(item))
    return found


def assert_unreachable(sentence, *roots):
    found = strings_from(*roots)
    words = sentence.split()
    for size in (1, len(words)):
        part = " ".join(words[-size:])
        assert not any(part in text for text in found), part


@pytest.mark.parametrize("lazy", [False, True])
def test_after_a_stop_the_rest_cannot_be_read(scope, lazy):
    line, flags = middle(scope)
    first = flags.index(True)
    closed = []

    def pieces():
        try:
            yield from list(TEXT + " And more.")
        finally:
            closed.append(True)

    stream = guard(
        pieces() if lazy else list(TEXT + " And more."), scope, QUESTION, PASSAGES, mode="stop", threshold=line
    )
    events = []
    for event in stream:
        events.append(event)
        if isinstance(event, Stopped):
            assert_unreachable(SENTENCES[first], stream, events)
    assert isinstance(events[-1], Stopped) and stream.state == "stopped" and not stream.clean
    assert shown(events) == TEXT[: TEXT.index(SENTENCES[first])].rstrip()
    assert "threshold" not in events[-1].reason and SENTENCES[first] not in events[-1].reason
    assert list(stream) == [] and closed == [True] * lazy


def test_a_clean_stream_is_clean_in_every_mode(tiny):
    scope = gs.Scope(tiny, "entropy", threshold=EVERYTHING)
    for mode in ("audit", "withhold", "stop"):
        stream = guard(TEXT.split(" and "), scope, QUESTION, PASSAGES, mode=mode)
        assert not stream.clean
        events = list(stream)
        assert stream.clean and stream.state == "finished" and shown(events) == TEXT


def test_an_error_upstream_comes_through_and_nothing_is_called_clean(scope):
    def pieces():
        yield "The tower was built in 1889. It stands "
        yield "in Paris. And"
        raise ConnectionError("upstream")

    for mode in ("audit", "withhold", "stop"):
        stream, events = guard(pieces(), scope, QUESTION, PASSAGES, mode=mode, threshold=EVERYTHING), []
        with pytest.raises(ConnectionError, match="upstream"):
            events.extend(iter_into(stream, events))
        assert stream.state == "failed" and not stream.clean and list(stream) == []
        assert not any(isinstance(event, Finished) for event in events)
        assert ("And" in shown(events)) == (mode == "audit")
        assert_unreachable("And", stream)


def iter_into(stream, events):
    for event in stream:
        events.append(event)
    return ()


def test_closing_lets_everything_go(scope):
    closed = []

    def pieces():
        try:
            yield from list(TEXT)
        finally:
            closed.append(True)

    with guard(pieces(), scope, QUESTION, PASSAGES, threshold=EVERYTHING) as stream:
        assert next(stream).text == SENTENCES[0]
    assert closed == [True] and stream.state == "closed" and not stream.clean and list(stream) == []
    assert not any("tower" in text or "complet" in text for text in strings_from(stream))
    stream.close()


@pytest.mark.parametrize("pieces", [[], ["", ""], ["I don't know."], ["..."]])
def test_what_claims_nothing_is_shown_unscored_and_not_clean(scope, pieces):
    stream = guard(pieces, scope, QUESTION, PASSAGES, threshold=-EVERYTHING)
    events = list(stream)
    assert shown(events) == "".join(pieces) and events[-1].verdict.outcome == "no_answer"
    assert not stream.clean and stream.flagged == 0
    assert_same(events[-1].verdict, scope.score(QUESTION, PASSAGES, "".join(pieces)))


class Finished2(Detector):
    name, summary, reference = "own", "asks about the finished text", "none"

    @property
    def signals(self):
        return ()

    @property
    def own_signals(self):
        return ("asked_about_it",)

    def token_scores(self, trace):
        return np.zeros(trace.tokens)


def test_what_cannot_be_had_online_is_refused_by_name(make_tiny):
    lm = make_tiny()

    class Chunks(Detector):
        name, summary, reference = "chunks", "reads chunks", "none"
        signals = ("chunk_context_score",)

        def token_scores(self, trace):
            return np.zeros(trace.tokens)

    for detector, signal in ((Chunks(), "chunk_context_score"), (Finished2(), "asked_about_it")):
        scope = gs.Scope(lm, detector, threshold=0.0)
        read = []
        handle = lm.anatomy.decoder.register_forward_pre_hook(lambda *_, r=read: r.append(1))
        with pytest.raises(InputError, match=signal):
            guard(iter([read.append("piece")]), scope, QUESTION, PASSAGES)
        handle.remove()
        assert read == ["piece"]


def test_random_documents_are_read_along(tiny):
    scope = gs.Scope(tiny, "contrast", threshold=1.0, span_threshold=0.1)
    (*_, last) = guard(cut(TEXT, range(3, len(TEXT), 5)), scope, QUESTION, PASSAGES, mode="audit")
    verdict = last.verdict
    assert verdict.contrast["source"] == "pool" and verdict.outcome == "scored"
    from groundscope.data.contrast import draw_contrasts

    document = draw_contrasts(gs.Example(QUESTION, PASSAGES, ""), (), scope.seed)[0]
    example = gs.Example(QUESTION, PASSAGES, TEXT)
    trace = tiny.trace(tiny.renderer().layout(example, [document.passages]), list(scope.detector.signals))
    np.testing.assert_allclose(
        [t.score for t in verdict.tokens], scope.detector.token_scores(trace), rtol=1e-4, atol=1e-4
    )


class Unclosable:
    """Pieces whose source breaks when it is closed."""

    def __init__(self, pieces):
        self.pieces = iter(pieces)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.pieces)

    def close(self):
        raise OSError("the connection is gone")


@pytest.mark.parametrize(("threshold", "last"), [(-EVERYTHING, Stopped), (EVERYTHING, Finished)])
def test_a_source_that_fails_to_close_loses_no_event(make_tiny, threshold, last):
    scope = gs.Scope(make_tiny(), "entropy", threshold=threshold)
    events = list(guard(Unclosable([TEXT]), scope, QUESTION, PASSAGES, mode="stop"))
    assert isinstance(events[-1], last)


def test_own_generation_ends_with_a_stop(make_tiny):
    lm = make_tiny()
    scope = gs.Scope(lm, "entropy", threshold=-EVERYTHING)
    session = Session(lm, lm.renderer().prompt(QUESTION, PASSAGES), scope.detector.signals)
    stream = guard_session(generate(session, Sampler(temperature=1.0), 60), session, scope, mode="stop")
    events = list(stream)
    assert shown(events) == "" and isinstance(events[-1], Stopped)
    assert not any("tower" in text for text in strings_from(stream, *events))


def test_wrong_use_is_refused_at_once(scope, tiny, make_tiny):
    for pieces in ("text", b"x", 3):
        with pytest.raises(InputError, match="'pieces' parameter"):
            guard(pieces, scope, QUESTION, PASSAGES)
    with pytest.raises(InputError, match="'mode' parameter"):
        guard([], scope, QUESTION, PASSAGES, mode="hold")
    with pytest.raises(InputError, match="'threshold' parameter"):
        guard([], scope, QUESTION, PASSAGES, threshold=float("nan"))
    for passages in ((), (" ",)):
        with pytest.raises(InputError, match="no passage"):
            guard([], scope, QUESTION, passages)
    for piece in (3, "\ud800"):
        stream = guard([piece], scope, QUESTION, PASSAGES)
        with pytest.raises(InputError):
            next(stream)
        assert stream.state == "failed"
    layout = tiny.renderer().prompt(QUESTION, PASSAGES)
    with pytest.raises(InputError, match="which this session does not compute"):
        guard_session([], Session(tiny, layout, ["lookback_ratio"]), scope)
    other = make_tiny()
    with pytest.raises(InputError, match="same LanguageModel"):
        guard_session([], Session(other, layout, scope.detector.signals), scope)
    session = Session(tiny, layout, scope.detector.signals)
    with pytest.raises(InputError, match="'sequence' parameter"):
        guard_session([], session, scope, sequence=1)
    stream = guard_session(["text"], session, scope)
    with pytest.raises(InputError, match="must be Tokens"):
        next(stream)


def test_a_text_that_outgrows_the_model_is_an_error(make_tiny):
    lm = make_tiny(context=120)
    scope = gs.Scope(lm, "entropy", threshold=4.0)
    stream = guard(iter(["word "] * 200), scope, "", ("Bees.",), threshold=EVERYTHING)
    with pytest.raises(ContextTooLongError):
        list(stream)
    assert stream.state == "failed" and not stream.clean
    with pytest.raises(ContextTooLongError):
        guard([], scope, "", ("Bees make honey. " * 60,))


def test_a_detector_that_fails_ends_the_stream(tiny):
    class Broken(Finished2):
        own_signals = ()
        signals = ("token_entropy",)

        def token_scores(self, trace):
            raise ZeroDivisionError

    stream = guard(list(TEXT), gs.Scope(tiny, Broken(), threshold=0.0), QUESTION, PASSAGES)
    with pytest.raises(gs.GroundscopeError, match="failed in token_scores"):
        list(stream)
    assert stream.state == "failed" and not stream.clean


def test_other_examples_are_not_there_yet(tiny):
    with pytest.raises(InputError, match="contrast='pool'"):
        guard([], gs.Scope(tiny, "contrast", threshold=1.0, contrast="examples"), QUESTION, PASSAGES)


@given(st.lists(st.sampled_from(["a", "B", ". ", "!", "\n", " ", "mr. ", "1", "東。", "c d", "“"]), max_size=25))
@settings(max_examples=25, deadline=None)
def test_every_character_is_shown_or_withheld_once(scope, pieces):
    text = "".join(pieces)
    for line in (EVERYTHING, -EVERYTHING):
        events = list(guard(pieces, scope, QUESTION, PASSAGES, threshold=line))
        assert line < 0 or shown(events) == text
        at = 0
        for event in events[:-1]:
            if isinstance(event, Released):
                assert event.start == at and text[event.start : event.end] == event.text
            else:
                assert isinstance(event, Withheld) and not text[at : event.start].strip()
            at = event.end
        assert at == len(text) and len(events[-1].verdict.response) == len(text)
