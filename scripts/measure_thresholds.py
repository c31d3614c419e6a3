"""Measure the shipped thresholds of the embedded model again, after a change of detector, template or sample.

    python scripts/measure_thresholds.py [NAME ...]

With names, only these are measured and the others' lines stay. Those that sample answers make it take an hour.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

import groundscope as gs
from groundscope.detectors.registry import from_name, names
from groundscope.detectors.thresholds import draw_lines, read_sample, reference_sample, threshold_key

TABLE = Path(__file__).parent.parent / "src" / "groundscope" / "data" / "thresholds.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a detector; by default all that need no training")
    wanted = parser.parse_args().names
    lm = gs.LanguageModel.from_pretrained("smollm2-135m")
    template = gs.PromptTemplate()
    made = [from_name(name) for name in wanted or names()]
    # Of nli the line depends on a classifier that does not come with the package.
    detectors = [detector for detector in made if not detector.needs_training and detector.name != "nli"]
    traces = read_sample(lm, detectors, template, reference_sample())
    table = json.loads(TABLE.read_text(encoding="utf-8")) if wanted else {}
    for detector in detectors:
        threshold = draw_lines(detector, traces, lm.name)
        table[threshold_key(lm, detector, template)] = dataclasses.asdict(threshold)
        print(f"{detector.name}: response {threshold.response:.4f}, span {threshold.span:.4f}")
    TABLE.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
