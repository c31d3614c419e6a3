"""Three examples that the tiny model has read for every signal."""

import pytest

import groundscope as gs
from groundscope.detectors.registry import from_name
from groundscope.reading import Reader
from groundscope.trace.signals import SIGNALS

TEXTS = [
    ("When?", ("The tower was completed in 1889.",), "It was completed in 1887."),
    ("Who?", ("Bees make honey.", "Rivers flow north."), "Bees make honey and 東京は🎉."),
    ("", ("It stands in Paris.", "It is tall.", "It is old."), "Paris"),
]


@pytest.fixture(scope="module")
def traced(tiny):
    signals = [name for name in SIGNALS if SIGNALS[name].source != "chunk"]
    reader = Reader(tiny, [from_name("lumina")], signals=signals, fingerprint=True)
    examples = [
        gs.Example(*texts, id=f"r{i}", labels=(gs.Label(0, 2, "x"),), source_id=f"s{i}", extra={"note": {"a": [1]}})
        for i, texts in enumerate(TEXTS)
    ]
    return list(reader.read_many(examples, examples))
