"""Cost of signals while a text is written, as ratios to plain cached generation in one run, on the embedded model.

    python benchmarks/bench_generation.py [--prompt 1024] [--new 64] [--rounds 3] [--copies 8]

Plain generation is the model's own forward pass with transformers' cache, the likeliest token fed back. It and what is
measured take turns token by token, so that both meet the same load of the machine; a ratio is the median over rounds
of (seconds / plain seconds), prompt included. Beside the wall clock stands the processor time of the process, which
other programs disturb less.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from transformers import DynamicCache

import groundscope as gs
from groundscope.mitigate.sampler import Sampler
from groundscope.mitigate.session import Session

ATTENTION = ["lookback_ratio", "aggtruth_sum", "aggtruth_js", "external_context_score"]
ALL_ATTENTION = [*ATTENTION, "aggtruth_cosine", "aggtruth_entropy", "passage_attention"]
REDEEP = ["external_context_score", "parametric_knowledge_score"]
Clocks = tuple[float, float]


def layout_of(prompt: int, vocabulary: int = 49_000) -> gs.Layout:
    rng = np.random.default_rng(0)
    ids = rng.integers(10, vocabulary, size=prompt)
    return gs.Layout.from_ids(ids, [], passages=[(40, prompt - 16)], header=(prompt - 4, prompt))


def clocks() -> Clocks:
    return time.perf_counter(), time.process_time()


def plain(lm: gs.LanguageModel, layout: gs.Layout, new: int, copies: int = 1) -> Iterator[None]:
    """Read the prompt, then one token per turn; more copies are made by repeating the cache."""
    cache = DynamicCache(config=lm.model.config)
    ids = torch.from_numpy(layout.prompt_ids)[None]
    for step in range(new + 1):
        with torch.inference_mode():
            out = lm.model(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1)
        ids = out.logits[:, -1].argmax(-1)[:, None]
        if step == 0 and copies > 1:
            cache.batch_repeat_interleave(copies)
            ids = ids.repeat(copies, 1)
        yield


def written(
    lm: gs.LanguageModel, layout: gs.Layout, new: int, signals: Sequence[str], sampler: Sampler, copies: int = 1
) -> Iterator[None]:
    session = Session(lm, layout, signals)
    if copies > 1:
        session = session.fork(copies)
    draws = sampler.draws(copies)
    yield
    for _ in range(new):
        session.feed(draws.choose(session.logits)[:, None])
        yield


def taking_turns(ours: Iterator[None], other: Iterator[None]) -> tuple[Clocks, Clocks]:
    """Seconds on both clocks of two generations that take turns."""
    spent = [[0.0, 0.0], [0.0, 0.0]]
    ends = [False, False]
    while not all(ends):
        for number, work in enumerate((ours, other)):
            before = clocks()
            ends[number] = next(work, StopIteration) is StopIteration
            after = clocks()
            spent[number][0] += after[0] - before[0]
            spent[number][1] += after[1] - before[1]
    return (spent[0][0], spent[0][1]), (spent[1][0], spent[1][1])


def measured(ours: Callable[[], Iterator[None]], other: Callable[[], Iterator[None]], rounds: int) -> list[float]:
    """Median seconds of ours, and median ratios to the other on both clocks."""
    seconds, wall, processor = [], [], []
    for _ in range(rounds):
        mine, theirs = taking_turns(ours(), other())
        seconds.append(mine[0])
        wall.append(mine[0] / theirs[0])
        processor.append(mine[1] / theirs[1])
    return [statistics.median(values) for values in (seconds, wall, processor)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt", type=int, default=1024)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--copies", type=int, default=8)
    arguments = parser.parse_args()
    lm = gs.LanguageModel.from_pretrained("smollm2-135m", dtype="float32", device="cpu")
    layout, new, copies = layout_of(arguments.prompt), arguments.new, arguments.copies
    greedy, drawn = Sampler(), Sampler(temperature=0.9, top_p=0.95)
    list(plain(lm, layout, 2)), list(written(lm, layout, 2, ATTENTION, greedy))
    cases: list[tuple[str, Sequence[str], Sampler, int, str]] = [
        ("no signals", [], greedy, 1, ""),
        ("no signals, sampled", [], drawn, 1, ""),
        ("attention signals (4)", ATTENTION, greedy, 1, "1.3"),
        ("attention signals (7)", ALL_ATTENTION, greedy, 1, ""),
        ("ReDeEP's scores", REDEEP, greedy, 1, ""),
        (f"{copies} candidates, 4 signals", ATTENTION, drawn, copies, ""),
    ]
    print(f"{'what':28}  {'seconds':>7}  {'x plain':>7}  {'x cpu':>7}  limit")
    for name, signals, sampler, count, limit in cases:
        seconds, wall, processor = measured(
            lambda s=signals, d=sampler, n=count: written(lm, layout, new, s, d, n),
            lambda n=count: plain(lm, layout, new, n),
            arguments.rounds,
        )
        print(f"{name:28}  {seconds:7.2f}  {wall:7.2f}  {processor:7.2f}  {limit}", flush=True)


if __name__ == "__main__":
    main()
