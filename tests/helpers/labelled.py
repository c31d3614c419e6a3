"""A small labelled set, and how a model reads it."""

from __future__ import annotations

import numpy as np

import groundscope as gs
from groundscope.detectors.registry import from_name
from groundscope.reading import Reader

WORDS = ("tower", "honey", "river", "paris", "bees", "engineers", "mountains", "sea", "nectar", "company",
         "north", "stands", "built")  # fmt: skip
SIGNALS = ("lookback_ratio", "aggtruth_sum", "passage_percentage", "hidden_state_1")


def make_examples(count: int = 40, seed: int = 0) -> list[gs.Example]:
    """Answers of two sentences; in half of them the second one is wrong and marked, and reads otherwise."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        facts = [" ".join(rng.choice(WORDS, 6)).capitalize() + "." for _ in range(3)]
        wrong = number % 2 == 1
        second = "1887 1889 1891 zzz qqq." if wrong else facts[1]
        response = f"{facts[0]} {second}"
        start = len(facts[0]) + 1
        labels = (gs.Label(start, len(response), "made up"),) if wrong else ()
        found.append(
            gs.Example(
                "What stands there?",
                tuple(facts),
                response,
                labels=labels,
                hallucinated=wrong,
                id=f"e{number}",
                source_id=f"s{number // 2}",
                label_kind="span",
                task="qa",
                dataset="made",
            )
        )
    return found


def read(lm: gs.LanguageModel, examples: list[gs.Example]):
    reader = Reader(lm, [from_name("contrast")], signals=SIGNALS, fingerprint=True)
    return list(reader.read_many(examples, examples))
