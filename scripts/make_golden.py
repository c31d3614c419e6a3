"""Write golden values: what the naive float64 reference of tests/reference yields on the embedded model.

    python scripts/make_golden.py tests/golden

Every file holds the token ids of one example and all signals; tests/trace/test_golden.py compares the engine with them.
The reference has seen neither the engine nor what it returns. Make them anew only when a definition changes, and say so
in the change. Another folder of such files is tested by GROUNDSCOPE_GOLDEN=FOLDER.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import groundscope as gs
from groundscope.data.contrast import draw_contrast

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from reference import SIGNALS, run

EXAMPLES = {
    "tower": gs.Example(
        "When was it completed?",
        (
            "The tower was completed in 1889, after two years and two months of work. It stands beside the river and "
            "is painted anew every seven years, which takes sixty tonnes of paint.",
        ),
        "The tower was completed in 1887, and it is painted every seven years by a company from Lyon.",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    lm = gs.LanguageModel.from_pretrained("smollm2-135m", dtype="float32", device="cpu")
    for name, example in EXAMPLES.items():
        layout = lm.renderer().layout(example, contrasts=[draw_contrast(example).passages])
        ranges = {part.kind: (part.start, part.end) for part in layout.segments}
        (contrast,) = layout.contrast_prompt_ids
        ids = [[int(number) for number in row] for row in (layout.prompt_ids, layout.response_ids, contrast)]
        found = run(lm.model, ids[0], ids[1], [ranges["passage"]], ranges["header"], ids[2])
        values = {
            key: np.asarray(values, dtype=np.int64 if key == "response_chunk" else np.float32)
            for key, values in found.items()
            if key in SIGNALS
        }
        path = folder / f"smollm2_{name}.npz"
        np.savez_compressed(
            path,
            prompt_ids=np.array(ids[0]),
            response_ids=np.array(ids[1]),
            contrast_prompt_ids=np.array(ids[2]),
            passage=np.array(ranges["passage"]),
            header=np.array(ranges["header"]),
            **values,
        )
        print(f"{path}: {len(ids[1])} tokens, {len(values)} signals, {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
