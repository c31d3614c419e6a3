"""Measure the shipped thresholds of the embedded model again, after a change of detector, template or sample.

python scripts/measure_thresholds.py

Those that sample answers make it take an hour.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import groundscope as gs
from groundscope.detectors.registry import from_name, names
from groundscope.detectors.thresholds import draw_lines, read_sample, reference_sample, threshold_key

TABLE = Path(__file__).parent.parent / "src" / "groundscope" / "data" / "thresholds.json"


def main() -> None:
    lm = gs.LanguageModel.from_pretrained("smollm2-135m")
    template = gs.PromptTemplate()
    made = [from_name(name) for name in names()]
    # Of nli the line depends on a classifier that does not come with the package.
    detectors = [detector for detector in made if not detector.needs_training and detector.name != "nli"]
    traces = read_sample(lm, detectors, template, reference_sample())
    table = {}
    for detector in detectors:
        threshold = draw_lines(detector, traces, lm.name)
        table[threshold_key(lm, detector, template)] = dataclasses.asdict(threshold)
        print(f"{detector.name}: response {threshold.response:.4f}, span {threshold.span:.4f}")
    TABLE.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
