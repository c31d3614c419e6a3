"""Curves of a detector: equal to readings made by hand, on the same responses in every setting."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from towers import make_examples

from groundscope.analyse.context import drop_sentences, inject_sentences
from groundscope.analyse.robustness import AXES, RobustnessOptions, robustness
from groundscope.data.contrast import draw_contrasts
from groundscope.detectors.learned.hidden_state import HiddenState
from groundscope.detectors.registry import from_name
from groundscope.detectors.untrained.lumina import Lumina
from groundscope.errors import InputError, MismatchError
from groundscope.evaluate.metrics.binary import auroc
from groundscope.example import Example
from groundscope.trace.traced import TracedExample

MORE = " Bees make honey from nectar. The river rises in the mountains. It flows into the sea."
EXAMPLES = [replace(e, passages=(e.passages[0] + MORE,)) for e in make_examples(6)]
LABELS = np.array([bool(e.hallucinated) for e in EXAMPLES])
OPTIONS = RobustnessOptions(resamples=40)


def by_hand(lm, detector, passages_of, documents=1, injected=0.0):
    renderer, scores = lm.renderer(), []
    for example in EXAMPLES:
        drawn = [d.passages for d in draw_contrasts(example, EXAMPLES, 0, documents)]
        drawn = [inject_sentences(example, document, injected) for document in drawn]
        layout = renderer.layout(replace(example, passages=passages_of(example)), drawn)
        scores.append(float(np.mean(detector.token_scores(lm.trace(layout, detector.signals)))))
    return auroc(LABELS, np.array(scores))


def test_curves_are_those_of_readings_made_by_hand(tiny):
    axes = {"dropped": (0.0, 0.5), "injected": (1.0,), "weight": (0.2,), "documents": (1, 2)}
    found = robustness(tiny, EXAMPLES, Lumina(), axes, OPTIONS)
    values = {(p.axis, p.value): p.auroc.value for p in found.points}
    want = {
        ("dropped", "0 %"): by_hand(tiny, Lumina(), lambda e: e.passages),
        ("dropped", "50 %"): by_hand(tiny, Lumina(), lambda e: drop_sentences(e, 0.5)),
        ("injected", "100 %"): by_hand(tiny, Lumina(), lambda e: e.passages, injected=1.0),
        ("weight", "0.2"): by_hand(tiny, Lumina(weight=0.2), lambda e: e.passages),
        ("documents", "1"): by_hand(tiny, Lumina(), lambda e: e.passages),
        ("documents", "2"): by_hand(tiny, Lumina(documents=2), lambda e: e.passages, documents=2),
    }
    assert values == pytest.approx(want)
    assert found.base.auroc.value == want["documents", "1"]
    still = next(p for p in found.points if (p.axis, p.value) == ("dropped", "0 %"))
    assert still.change.estimate.value == still.change.estimate.low == still.change.estimate.high == 0
    assert (found.responses, found.hallucinated) == (12, int(LABELS.sum()))
    json.dumps(found.to_dict(), allow_nan=False)


def test_all_kernels_of_the_paper_are_read_in_one_go(tiny):
    passes = []
    hook = tiny.anatomy.decoder.register_forward_pre_hook(lambda *_: passes.append(1))
    try:
        found = robustness(tiny, EXAMPLES, Lumina(), ["kernel"], OPTIONS)
    finally:
        hook.remove()
    assert [p.value for p in found.points][:3] == [
        "kernel=cosine, top_k=None",
        "kernel=cosine, top_k=100",
        "kernel=rbf, top_k=100, sigma=0.5",
    ]
    assert len(found.points) == len(AXES["kernel"]) == 7
    assert len(passes) <= 2 * len(EXAMPLES)


def test_an_axis_without_meaning_is_refused(tiny):
    for name, axis in (("perplexity", "injected"), ("perplexity", "weight"), ("contrast", "kernel")):
        with pytest.raises(InputError, match=f"axis '{axis}' needs"):
            robustness(tiny, EXAMPLES, from_name(name), [axis], OPTIONS)
    with pytest.raises(InputError, match="calibration"):
        robustness(tiny, EXAMPLES, Lumina(calibration="zscore"), ["kernel"], OPTIONS)
    with pytest.raises(InputError, match="'axes'"):
        robustness(tiny, EXAMPLES, Lumina(), ["temperature"], OPTIONS)
    with pytest.raises(InputError, match="both classes"):
        robustness(tiny, [e for e in EXAMPLES if e.hallucinated], Lumina(), ["weight"], OPTIONS)


def test_one_response_that_cannot_be_read_loses_no_other(make_tiny):
    lm = make_tiny(context=400)
    long = Example("When?", ("The river rises. " * 200,), "In 1889.", hallucinated=True, id="long", source_id="long")
    found = robustness(lm, [*EXAMPLES, long], from_name("perplexity"), ["dropped"], OPTIONS)
    assert found.responses == 12 and sum(found.unread.values()) == 1


def test_a_trained_detector_meets_its_own_model_and_other_sources_only(tiny, make_tiny):
    others = [replace(e, id=f"other {e.id}", source_id=f"other {e.source_id}") for e in make_examples(8, seed=5)]
    detector = HiddenState(layer=1)
    layouts = [tiny.renderer().layout(example) for example in others]
    traces = tiny.trace(layouts, detector.signals)
    mark = tiny.fingerprint()
    data = [TracedExample(e, replace(t, fingerprint=mark)) for e, t in zip(others, traces, strict=True)]
    detector.fit(data)
    found = robustness(tiny, EXAMPLES, detector, ["dropped"], OPTIONS)
    assert [p.value for p in found.points] == ["0 %", "10 %", "20 %", "30 %"]
    with pytest.raises(InputError, match="learnt from"):
        robustness(tiny, others, detector, ["dropped"], OPTIONS)
    stranger = make_tiny()
    stranger.model.model.embed_tokens.weight.data.mul_(2)
    with pytest.raises(MismatchError):
        robustness(stranger, EXAMPLES, detector, ["dropped"], OPTIONS)
