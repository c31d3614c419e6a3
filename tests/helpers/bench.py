"""A bench for detectors: a tiny real model, texts, and labelled texts to learn from."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from tiny_model import build_tiny_llama, build_tiny_tokenizer

import groundscope as gs
from groundscope.detectors.base import Detector
from groundscope.detectors.learnable import LearnedDetector
from groundscope.example import Example, Label
from groundscope.trace.engine import trace_each
from groundscope.trace.signals import SIGNALS
from groundscope.trace.traced import TracedExample

# fmt: off
_WORDS = [
    "tower", "completed", "stands", "Paris", "built", "engineers", "company", "bees", "make", "honey", "nectar",
    "river", "rises", "mountains", "flows", "northern", "sea", "answer", "question", "using", "information",
    "context", "finished", "summary", "1889", "1923", "twelve",
]
# fmt: on
_TRAIN, _DEV = 14, 8


def _text(rng: np.random.Generator, low: int, high: int) -> str:
    return " ".join(rng.choice(_WORDS, size=int(rng.integers(low, high + 1)))).capitalize() + "."


def _example(rng: np.random.Generator, number: int, passages: int) -> Example:
    texts = tuple(_text(rng, 6, 14) for _ in range(passages))
    response = _text(rng, 5, 12)
    return Example(_text(rng, 3, 5), texts, response, id=f"e{number}", source_id=f"s{number}", label_kind="span")


def _labelled(rng: np.random.Generator, example: Example, hallucinated: bool) -> Example:
    """Mark the words from a random place on, in responses that are to be hallucinated."""
    if not hallucinated:
        return replace(example, labels=(), hallucinated=False)
    spaces = [index for index, letter in enumerate(example.response) if letter == " "]
    start = int(rng.choice(spaces)) + 1
    return replace(example, labels=(Label(start, len(example.response)),), hallucinated=True)


@dataclass(frozen=True, eq=False)
class Bench:
    """A real, tiny model, texts of unequal length (the last response has one token), and labelled ones.

    Attributes:
        lm: The model that reads; it has a tokenizer.
        examples: What is scored, unlabelled.
        labelled: What is learnt from; both classes, every example of a source of its own.
    """

    lm: gs.LanguageModel
    examples: list[Example]
    labelled: list[Example]
    _kept: dict = field(default_factory=dict)

    @classmethod
    def make(cls) -> Bench:
        rng = np.random.default_rng(17)
        examples = [_example(rng, number, passages) for number, passages in enumerate((1, 3, 2, 1))]
        examples.append(replace(_example(rng, 4, 1), response="x"))
        labelled = [
            _labelled(rng, _example(rng, 100 + number, 1 + number % 3), number % 2 == 1)
            for number in range(_TRAIN + _DEV)
        ]
        tokenizer = build_tiny_tokenizer()
        return cls(gs.LanguageModel(build_tiny_llama(len(tokenizer)), tokenizer, name="tiny-llama"), examples, labelled)

    @cached_property
    def layouts(self) -> list[gs.Layout]:
        return [self._layout(example) for example in self.examples]

    @cached_property
    def fingerprint(self) -> dict:
        return self.lm.fingerprint()

    def _layout(self, example: Example) -> gs.Layout:
        others = [self.labelled[0].passages, self.labelled[1].passages]
        return self.lm.renderer().layout(example, contrasts=others)

    def complete(self, detector: Detector, example: Example, trace: gs.Trace) -> gs.Trace:
        """Add what the detector gathers itself."""
        own = detector.gather(self.lm, example, trace.layout) if detector.own_signals else {}
        return replace(trace, signals={**trace.signals, **own}, fingerprint=self.fingerprint)

    def _read(self, layouts: list[gs.Layout], detector: Detector, **options) -> list[gs.Trace]:
        if detector.signals:
            return self.lm.trace(layouts, detector.signals, **options)
        return trace_each(self.lm, layouts, (), **options)  # it reads what it gathers itself, nothing else

    def traces(self, detector: Detector, **options) -> list[gs.Trace]:
        """Read what is scored."""
        read = self._read(self.layouts, detector, **options)
        return [self.complete(detector, *pair) for pair in zip(self.examples, read, strict=True)]

    def one_by_one(self, detector: Detector) -> list[gs.Trace]:
        """Read what is scored, each text alone."""
        read = [self._read([layout], detector)[0] for layout in self.layouts]
        return [self.complete(detector, *pair) for pair in zip(self.examples, read, strict=True)]

    def full_traces(self, detector: Detector) -> list[gs.Trace]:
        """Read what is scored with all signals that there are."""
        read = self.lm.trace(self.layouts, [*detector.signals, *SIGNALS])
        return [self.complete(detector, *pair) for pair in zip(self.examples, read, strict=True)]

    def learnable(self, detector: Detector) -> tuple[list[TracedExample], list[TracedExample]]:
        """Return what to learn from and what to choose on; the arrays cannot be written to."""
        key = (detector.signals, detector.own_signals, repr(detector) if detector.own_signals else "")
        if key not in self._kept:
            read = self._read([self._layout(example) for example in self.labelled], detector)
            traces = [self.complete(detector, *pair) for pair in zip(self.labelled, read, strict=True)]
            for trace in traces:
                for values in trace.values():
                    values.setflags(write=False)
            self._kept[key] = [TracedExample(*pair) for pair in zip(self.labelled, traces, strict=True)]
        kept = self._kept[key]
        return list(kept[:_TRAIN]), list(kept[_TRAIN:])

    def ready(self, detector: Detector) -> Detector:
        """Return a copy that can score: fitted, if it is one that learns."""
        if not isinstance(detector, LearnedDetector):
            return detector
        key = (type(detector), repr(detector))
        if key not in self._kept:
            self._kept[key] = type(detector)(**detector.get_params()).fit(*self.learnable(detector))
        return copy.deepcopy(self._kept[key])
