"""Time and memory of the trace engine on the embedded model, as ratios to a plain SDPA prefill in one run.

    python benchmarks/bench_engine.py [--repeats 5]

Every time is the median over repeats of (what is measured / plain prefill of the same tokens run just
before it). The plain prefill computes the logits of the last position only, as generation does. Memory is
the growth of the process' peak over the peak of a process that runs the plain prefill alone.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

import groundscope as gs
from groundscope.trace.signals import SIGNALS

ATTENTION = [
    "lookback_ratio",
    "aggtruth_sum",
    "aggtruth_cosine",
    "aggtruth_entropy",
    "aggtruth_js",
    "external_context_score",
]
OUTPUT = ["token_logprob", "token_entropy", "token_energy"]


def layout_of(prompt: int, response: int, vocabulary: int = 49_000) -> gs.Layout:
    rng = np.random.default_rng(0)
    ids = rng.integers(10, vocabulary, size=prompt)
    other = ids.copy()
    other[40 : prompt - 16] = rng.integers(10, vocabulary, size=prompt - 56)
    return gs.Layout.from_ids(
        ids,
        rng.integers(10, vocabulary, size=response),
        passages=[(40, prompt - 16)],
        header=(prompt - 4, prompt),
        contrast_prompt_ids=other,
    )


def prefill(lm: gs.LanguageModel, layout: gs.Layout) -> None:
    ids = torch.from_numpy(np.concatenate([layout.prompt_ids, layout.response_ids]))[None].to(lm.device)
    with torch.inference_mode():
        lm.model(input_ids=ids, use_cache=False, logits_to_keep=1)


def with_attentions(lm: gs.LanguageModel, layout: gs.Layout) -> None:
    ids = torch.from_numpy(np.concatenate([layout.prompt_ids, layout.response_ids]))[None].to(lm.device)
    lm.model.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            lm.model(input_ids=ids, use_cache=False, logits_to_keep=1, output_attentions=True)
    finally:
        lm.model.set_attn_implementation("sdpa")


def ratio(lm: gs.LanguageModel, layout: gs.Layout, work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Median seconds of ``work``, and median of its ratio to the prefill before it."""
    prefill(lm, layout)
    work()
    seconds, ratios = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        prefill(lm, layout)
        middle = time.perf_counter()
        work()
        end = time.perf_counter()
        seconds.append(end - middle)
        ratios.append((end - middle) / (middle - start))
    return statistics.median(seconds), statistics.median(ratios)


def peak_mib(task: str, prompt: int, response: int) -> float:
    """Peak resident memory of a fresh process that loads the model and does one task."""
    command = [sys.executable, __file__, "--task", task, "--shape", str(prompt), str(response)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout.strip().splitlines()[-1])["peak_mib"])


def run_task(task: str, prompt: int, response: int) -> None:
    lm = gs.LanguageModel.from_pretrained("smollm2-135m")
    layout = layout_of(prompt, response)
    work: dict[str, Callable[[], object]] = {
        "prefill": lambda: prefill(lm, layout),
        "attention": lambda: lm.trace(layout, ATTENTION),
        "all": lambda: lm.trace(layout, list(SIGNALS)),
        "output_attentions": lambda: with_attentions(lm, layout),
    }
    work[task]()
    print(json.dumps({"peak_mib": own_peak_mib()}))


def own_peak_mib() -> float:
    """Peak resident memory of this program; ``ru_maxrss`` is inherited from the process that started it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def report(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--task", choices=["prefill", "attention", "all", "output_attentions"])
    parser.add_argument("--shape", type=int, nargs=2, default=(2048, 192))
    arguments = parser.parse_args()
    if arguments.task:
        run_task(arguments.task, *arguments.shape)
        return
    lm = gs.LanguageModel.from_pretrained("smollm2-135m")
    long, short = layout_of(2048, 192), layout_of(1024, 128)
    rows = [("what", "tokens", "seconds", "x prefill", "limit")]
    cases: list[tuple[str, gs.Layout, Callable[[], object], str]] = [
        ("attention signals (6)", long, lambda: lm.trace(long, ATTENTION), "1.25"),
        ("lookback_ratio alone", long, lambda: lm.trace(long, ["lookback_ratio"]), ""),
        ("output signals (3)", long, lambda: lm.trace(long, OUTPUT), ""),
        ("output_attentions=True", long, lambda: with_attentions(lm, long), ""),
        (f"all {len(SIGNALS)} signals, 2 prefills", short, lambda: lm.trace(short, list(SIGNALS)), "6"),
    ]
    for name, layout, work, limit in cases:
        repeats = arguments.repeats if name != "output_attentions=True" else 1
        seconds, times = ratio(lm, layout, work, repeats)
        tokens = f"{layout.prompt_length}+{layout.response_length}"
        rows.append((name, tokens, f"{seconds:.2f}", f"{times:.2f}", limit))
        print(f"{name}: {times:.2f} ({seconds:.2f} s)", file=sys.stderr)
    report(rows)
    print()
    plain = peak_mib("prefill", 2048, 192)
    rows = [("peak memory", "tokens", "MiB", "over prefill", "limit")]
    for task, prompt, response, limit in (
        ("prefill", 2048, 192, ""),
        ("attention", 2048, 192, "+300"),
        ("output_attentions", 2048, 192, ""),
        ("attention", 8000, 192, "3072 in all"),
        ("all", 8000, 192, ""),
    ):
        used = plain if task == "prefill" else peak_mib(task, prompt, response)
        over = f"{used - plain:+.0f}" if prompt == 2048 else ""
        rows.append((task, f"{prompt}+{response}", f"{used:.0f}", over, limit))
    report(rows)


if __name__ == "__main__":
    main()
