"""A detector fitted on a handful of real traces, for tests of what is done with it afterwards."""

from __future__ import annotations

import groundscope as gs
from groundscope.detectors.learnable import LearnedDetector
from groundscope.detectors.registry import from_name
from groundscope.reading import Reader


def fitted(lm: gs.LanguageModel, name: str = "lookback-lens", **params) -> LearnedDetector:
    """Fit a method on six answers, three of them marked."""
    examples = [
        gs.Example(
            "When?",
            (f"The tower number {number} was completed in 1889.",),
            f"It was completed in {1880 + number}, and it stands in Paris.",
            labels=(gs.Label(20, 24, "year"),) if number % 2 else (),
            id=str(number),
            label_kind="span",
        )
        for number in range(6)
    ]
    detector = from_name(name, **params)
    assert isinstance(detector, LearnedDetector)
    return detector.fit(list(Reader(lm, [detector], fingerprint=True).read_many(examples, examples)))
