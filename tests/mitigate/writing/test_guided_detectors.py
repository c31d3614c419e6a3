"""Any token detector guides: each candidate's score is what the engine says of its finished text."""

from __future__ import annotations

import numpy as np
import pytest

import groundscope as gs
from groundscope.detectors.base import Detector
from groundscope.detectors.learned.aggtruth import AggTruth
from groundscope.detectors.learned.hidden_state import HiddenState
from groundscope.detectors.learned.lookback_lens import LookbackLens
from groundscope.detectors.learned.redeep import ReDeEPToken
from groundscope.detectors.registry import from_name
from groundscope.mitigate.writing.guided import guided
from groundscope.mitigate.writing.judging import stretch_score
from groundscope.mitigate.writing.sampler import Sampler
from groundscope.mitigate.writing.session import Session
from groundscope.reading import Reader
from groundscope.trace.traced import TracedExample

QUESTION, PASSAGES = "When was it completed?", ["The tower was completed in 1889.", "Bees make honey."]
ANSWERS = [
    "It was completed in 1889, and it still stands.",
    "It was finished by bees in the year 1901.",
    "In 1889, the tower was completed by its makers.",
    "Honey makes towers, says the northern sea.",
]


class Fusion(Detector):
    """What a user may write: a weighted sum of detectors that read different parts of the model."""

    name, summary, reference = "fusion", "for tests", "none"
    documents = 1

    def __init__(self, parts: tuple[tuple[float, Detector], ...]) -> None:
        self.parts = parts

    @property
    def signals(self):
        return tuple(dict.fromkeys(name for _weight, part in self.parts for name in part.signals))

    def token_scores(self, trace):
        return np.sum([weight * part.token_scores(trace) for weight, part in self.parts], axis=0)


@pytest.fixture(scope="module")
def prompt(tiny):
    return tiny.renderer().prompt(QUESTION, PASSAGES, [["The river rises in the mountains.", "It is long."]])


@pytest.fixture(scope="module")
def guides(tiny):
    """One of each kind that can score what is being written; probes have learnt from what the tiny model reads."""
    examples = [
        gs.Example(
            QUESTION, (f"{PASSAGES[0]} {number}", PASSAGES[1]), text, id=str(number), source_id=str(number),
            labels=(gs.Label(0, len(text) // 2),) if number % 2 else (), label_kind="span",
        )
        for number, text in enumerate(ANSWERS * 3)
    ]  # fmt: skip
    probes = [
        LookbackLens(),
        *(AggTruth(aggregate=name, selector=None) for name in ("sum", "cosine", "entropy", "js")),
        HiddenState(layer=1),
        ReDeEPToken(heads=3, layers=2),
    ]
    read = Reader(tiny, probes, fingerprint=True).read(examples)
    traced = [TracedExample(one, traces[0]) for one, traces in zip(examples, read, strict=True)]
    found: dict[str, Detector] = {}
    for probe in probes:
        name = f"{probe.name}, {probe.aggregate}" if isinstance(probe, AggTruth) else probe.name
        found[name] = probe.fit(traced)
    for name in ("lumina", "contrast", "perplexity", "entropy", "energy"):
        found[name] = from_name(name)
    found["fusion"] = Fusion(
        ((2.0, found["lookback-lens"]), (1.0, found["lumina"]), (0.5, found["redeep-token"]), (-0.1, found["entropy"]))
    )
    return found


KINDS = [
    "lookback-lens",
    *(f"aggtruth, {name}" for name in ("sum", "cosine", "entropy", "js")),
    "hidden-state",
    "redeep-token",
    "lumina",
    "contrast",
    "perplexity",
    "entropy",
    "energy",
    "fusion",
]


def read_finished(lm, prompt, ids, detector):
    """What the engine says of a finished text."""
    layout = gs.Layout.from_ids(
        prompt.prompt_ids,
        ids,
        passages=prompt.passages,
        header=prompt.header,
        contrast_prompt_ids=prompt.contrast_prompt_ids,
    )
    return lm.trace(layout, detector.signals)


def test_every_guide_is_tried(guides):
    assert sorted(guides) == sorted(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_the_choice_is_that_of_the_finished_text(tiny, prompt, guides, name):
    detector = guides[name]
    answer = guided(
        Session(tiny, prompt, detector.signals),
        detector,
        sampler=Sampler(temperature=1.0, top_p=0.95, seed=4),
        candidates=4,
        chunk=5,
        max_new_tokens=15,
    )
    steps = list(answer)
    before: list[int] = []
    differing = 0
    for step in steps:
        scores = [item.score for item in step.decision.candidates]
        for item in step.decision.candidates:
            trace = read_finished(tiny, prompt, [*before, *item.ids], detector)
            want = stretch_score(detector, trace, len(before), len(before) + len(item.ids))
            assert item.score == pytest.approx(want, rel=1e-3, abs=1e-4)
        assert step.decision.basis == "score"
        assert step.decision.chosen == int(np.argmin(scores))
        differing += len(set(scores)) > 1
        before += step.decision.taken.ids
    assert differing
    # Where the budget cuts a character in two, its tokens are no part of the answer.
    kept = answer.session.ids(0)
    assert before[: len(kept)] == kept and len(before) - len(kept) < 4 and before == answer.log.ids
    assert answer.session.ended(0) == "length"
    assert "".join(step.piece for step in steps) == answer.text == answer.log.text


def test_a_fusion_reads_each_part_of_the_model_once(tiny, prompt, guides):
    fusion = guides["fusion"]
    assert len(fusion.signals) == len(set(fusion.signals)) > 5
    trace = read_finished(tiny, prompt, [5, 6, 7], fusion)
    apart = sum(weight * stretch_score(part, trace, 0, 3) for weight, part in fusion.parts[1:])
    together = stretch_score(Fusion(fusion.parts[1:]), trace, 0, 3)
    assert together == pytest.approx(apart)


def test_a_scope_writes_and_judges_by_a_fusion(tiny, guides):
    scope = gs.Scope(tiny, guides["fusion"], threshold=0.5)
    done = scope.generate(QUESTION, PASSAGES, strategy="guided", candidates=3, chunk=4, max_new_tokens=10, seed=1)
    assert done.log.detector == done.verdict.detector == "fusion" and done.text == done.log.text
    assert all(len({item.score for item in step.candidates}) > 1 for step in done.log.decisions)
    assert done.verdict.response == done.text
