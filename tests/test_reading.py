from collections.abc import Mapping

import numpy as np
import pytest

import groundscope as gs
from groundscope.detectors.base import Detector
from groundscope.detectors.registry import from_name
from groundscope.errors import InputError, UnsupportedModelError
from groundscope.reading import Reader, Unread, nothing_to_read
from groundscope.trace.traced import TracedExample

PASSAGE = "The tower was completed in 1889."


def _example(response="It was completed in 1887.", number=0, passages=(PASSAGE,), question="When?"):
    return gs.Example(question, passages, response, id=f"r{number}")


class Counting(Detector):
    """Counts characters; its own signal."""

    name, summary, reference = "counting", "s", "r"
    own_signals = ("characters",)

    @property
    def signals(self):
        return ("token_logprob",)

    def gather(self, lm, example, layout) -> Mapping[str, np.ndarray]:
        if "boom" in example.response:
            raise RuntimeError("no luck")
        return {"characters": np.full(layout.response_length, len(example.response), dtype=np.float32)}

    def token_scores(self, trace):
        return trace["characters"].astype(np.float64)


def test_several_detectors_share_their_passes(tiny, monkeypatch):
    calls = []
    import groundscope.reading as module

    real = module.trace_each
    monkeypatch.setattr(module, "trace_each", lambda *a, **k: calls.append(a[2]) or real(*a, **k))
    reader = Reader(tiny, [from_name("contrast"), from_name("lumina"), Counting()], signals=["lookback_ratio"])
    traces = reader.read([_example()])[0]
    assert len(calls) == 1 and len(calls[0]) == len(set(calls[0]))
    assert {"mmd", "token_logprob_contrast", "lookback_ratio", "characters"} <= set(traces[0])
    for name in ("contrast", "lumina"):
        alone = Reader(tiny, [from_name(name)]).read([_example()])[0][0]
        detector = from_name(name)
        np.testing.assert_allclose(detector.token_scores(alone), detector.token_scores(traces[0]), atol=1e-5)


def test_what_cannot_be_read_harms_no_other(make_tiny):
    lm = make_tiny(context=300)
    examples = [
        _example("", 0),
        _example("I don't know.", 1),
        _example(number=2, passages=("",)),
        _example(number=3, passages=(PASSAGE * 60,)),
        _example("boom.", 4),
        _example(number=5),
    ]
    results = list(Reader(lm, [Counting()]).read_many(examples))
    outcomes = [item.outcome if isinstance(item, Unread) else "read" for item in results]
    assert outcomes == ["no_answer", "no_answer", "no_context", "too_long", "failed", "read"]
    assert [item.id for item in results[:5]] == [f"r{i}" for i in range(5)]
    assert "'counting' failed in gather: RuntimeError: no luck" in results[4].message


@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_order_and_values_do_not_depend_on_blocks(tiny, batch_size):
    examples = [_example("It was completed. " * (1 + i % 3), i) for i in range(7)]
    want = list(Reader(tiny, [from_name("contrast")], batch_size=4).read_many(examples, examples))
    got = list(Reader(tiny, [from_name("contrast")], batch_size=batch_size).read_many(iter(examples), examples))
    for one, other in zip(want, got, strict=True):
        assert isinstance(other, TracedExample) and one.example.id == other.example.id
        np.testing.assert_allclose(
            one.trace["token_logprob_contrast"], other.trace["token_logprob_contrast"], atol=1e-4
        )


def test_a_trace_of_several_prompts_is_no_single_trace(make_tiny):
    reader = Reader(make_tiny(context=400), [Counting()], long_context="chunk")
    long = _example(passages=tuple(f"{PASSAGE} Number {i}." for i in range(30)))
    assert len(reader.read([long])[0]) > 1
    (result,) = reader.read_many([long])
    assert isinstance(result, Unread) and result.outcome == "too_long"


def test_the_fingerprint_is_there_where_it_is_asked_for(tiny):
    traces = {flag: Reader(tiny, [Counting()], fingerprint=flag).read([_example()])[0][0] for flag in (True, False)}
    assert dict(traces[False].fingerprint) == {}
    assert traces[True].fingerprint == tiny.fingerprint() and traces[True].fingerprint["heads"] == 4


def test_documents_come_from_the_examples_if_asked(tiny):
    reader = Reader(tiny, [from_name("contrast")], contrast="examples")
    (result,) = reader.read([_example()])
    assert isinstance(result, Unread) and "random document" in result.message
    other = _example(number=1, passages=("Bees make honey.",))
    (traces,) = reader.read([_example()], [other])
    assert traces[0].layout.contrast["which"] == "r1"


def test_nothing_to_read_is_found_before_any_model():
    assert nothing_to_read(_example()) is None
    assert nothing_to_read(_example("\u200b")).outcome == "no_answer"
    assert nothing_to_read(_example("...")).outcome == "no_answer"


def test_an_unknown_signal_is_refused(tiny):
    with pytest.raises(InputError, match="Unknown signal"):
        Reader(tiny, [], signals=["nonsense"])


def test_chunks_are_cut_for_detectors_that_need_them(tiny):
    detector = from_name("redeep-chunk", size=20, overlap=5)
    (traces,) = Reader(tiny, [detector, from_name("contrast")]).read([_example()])
    chunks = traces[0].layout.chunks
    assert chunks is not None and len(chunks.response) > 1
    assert set(detector.signals) <= set(traces[0])
    with pytest.raises(InputError, match="same chunks"):
        Reader(tiny, [detector, from_name("redeep-chunk", size=30, overlap=5)])


def test_detectors_that_a_model_cannot_serve_are_left_out_if_asked(tiny, caplog):
    detectors = [from_name("contrast"), from_name("hidden-state", layer=99)]
    with pytest.raises(UnsupportedModelError, match="layers 0 to 2"):
        Reader(tiny, detectors).read([_example()])
    reader = Reader(tiny, detectors, leave_out=True)
    assert [detector.name for detector in reader.detectors] == ["contrast"]
    assert "hidden-state is left out" in caplog.text
