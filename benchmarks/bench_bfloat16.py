"""bfloat16 against float32 on the embedded model: speed of a prefill, and how far each signal moves.

    python benchmarks/bench_bfloat16.py [DATA.jsonl]

DATA defaults to the sample in examples/. The table gives, per signal, the root mean square difference and
the mean absolute difference over all entries, relative to the signal's own root mean square and mean
absolute value, the mean absolute difference in the signal's own unit, the share of entries that are
within 2e-2 as numpy's allclose has it (absolute or relative), and the rank correlation of the means of
responses.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr

import groundscope as gs
from groundscope.data.contrast import draw_contrast
from groundscope.data.jsonl import read_records
from groundscope.trace.signals import SIGNALS

SAMPLE = Path(__file__).parent.parent / "examples" / "ragtruth_qa_sample.jsonl"
TOLERANCE = 2e-2


def prefill_seconds(lm: gs.LanguageModel, ids: torch.Tensor) -> float:
    start = time.perf_counter()
    with torch.inference_mode():
        lm.model(input_ids=ids, use_cache=False, logits_to_keep=1)
    return time.perf_counter() - start


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLE
    examples = [record for record in read_records(path) if isinstance(record, gs.Example)]
    exact = gs.LanguageModel.from_pretrained("smollm2-135m", dtype="float32")
    half = gs.LanguageModel.from_pretrained("smollm2-135m", dtype="bfloat16")
    # Long enough for the layers to be what takes the time, short enough for processors without bfloat16 instructions.
    ids = torch.randint(10, 49_000, (1, 1024), generator=torch.Generator().manual_seed(0))
    prefill_seconds(exact, ids), prefill_seconds(half, ids)
    speed = statistics.median(prefill_seconds(exact, ids) / prefill_seconds(half, ids) for _ in range(3))
    print(f"prefill of 1,024 tokens: bfloat16 is {speed:.2f} x as fast as float32\n", flush=True)
    renderer = exact.renderer()
    layouts = [renderer.layout(item, [draw_contrast(item, examples).passages]) for item in examples]
    want, got = exact.trace(layouts, list(SIGNALS)), half.trace(layouts, list(SIGNALS))
    print(f"{len(layouts)} answers")
    print(f"{'signal':42}{'rms':>10}{'mean abs':>10}{'in units':>10}{'within':>10}{'spearman':>10}")
    for name in SIGNALS:
        a = np.concatenate([trace[name].ravel() for trace in want]).astype(np.float64)
        b = np.concatenate([trace[name].ravel() for trace in got]).astype(np.float64)
        if not np.any(a):
            continue  # nothing to be relative to
        rms = np.sqrt(np.mean((a - b) ** 2) / np.mean(a**2))
        apart = np.mean(np.abs(a - b))
        within = np.mean(np.isclose(b, a, rtol=TOLERANCE, atol=TOLERANCE))
        mean = apart / np.mean(np.abs(a))
        ranks = spearmanr([t[name].mean() for t in want], [t[name].mean() for t in got]).statistic
        print(f"{name:42}{rms:10.4f}{mean:10.4f}{apart:10.4f}{within:10.4f}{ranks:10.3f}")


if __name__ == "__main__":
    main()
