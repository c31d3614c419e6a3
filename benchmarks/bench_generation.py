"""Cost of signals while a text is written, as ratios to plain cached generation in one run, on the embedded model.

    python benchmarks/bench_generation.py [--prompt 1024] [--new 64] [--copies 8]

Plain generation is the model's own forward pass with transformers' cache, the likeliest token fed back. It and what is
measured take turns token by token, so that both meet the same load of the machine; a ratio is the median over tokens
of (seconds / plain seconds). Beside the wall clock stands the processor time of the process, which other programs
disturb less. ``fork`` is the time to make the candidates, ``prompt`` the ratio of reading the prompt. The last row
compares candidates with the plain generation of one text.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from transformers import DynamicCache

import groundscope as gs
from groundscope.mitigate.writing.sampler import Sampler
from groundscope.mitigate.writing.session import Session

ATTENTION = ["lookback_ratio", "aggtruth_sum", "aggtruth_js", "external_context_score"]
ALL_ATTENTION = [*ATTENTION, "aggtruth_cosine", "aggtruth_entropy", "passage_attention"]
REDEEP = ["external_context_score", "parametric_knowledge_score"]
Clocks = tuple[float, float]


def layout_of(prompt: int, vocabulary: int = 49_000) -> gs.Layout:
    rng = np.random.default_rng(0)
    ids = rng.integers(10, vocabulary, size=prompt)
    return gs.Layout.from_ids(ids, [], passages=[(40, prompt - 16)], header=(prompt - 4, prompt))


def read_prompt(lm: gs.LanguageModel, layout: gs.Layout) -> tuple[DynamicCache, torch.Tensor]:
    cache = DynamicCache(config=lm.model.config)
    ids = torch.from_numpy(layout.prompt_ids)[None]
    with torch.inference_mode():
        out = lm.model(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1)
    return cache, out.logits[:, -1].argmax(-1)[:, None]


def plain(lm: gs.LanguageModel, read: tuple[DynamicCache, torch.Tensor], copies: int) -> Iterator[None]:
    """One token per turn, on a copy of the prompt's cache."""
    cache, ids = copy.deepcopy(read[0]), read[1].repeat(copies, 1)
    if copies > 1:
        cache.batch_repeat_interleave(copies)
    while True:
        with torch.inference_mode():
            out = lm.model(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1)
        ids = out.logits[:, -1].argmax(-1)[:, None]
        yield


def written(session: Session, sampler: Sampler) -> Iterator[None]:
    """One token per turn."""
    draws = sampler.draws(session.size)
    while True:
        session.feed(draws.choose(session.logits)[:, None])
        yield


def timed(work: Callable[[], object]) -> Clocks:
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


def taking_turns(ours: Iterator[None], other: Iterator[None], new: int) -> tuple[float, float, float]:
    """Median milliseconds per token of ours, and median ratios to the other on both clocks."""
    next(ours), next(other)
    pairs = [(timed(lambda: next(ours)), timed(lambda: next(other))) for _ in range(new - 1)]
    wall, processor = (statistics.median(mine[i] / theirs[i] for mine, theirs in pairs) for i in (0, 1))
    return 1e3 * statistics.median(mine[0] for mine, _ in pairs), wall, processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt", type=int, default=1024)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--copies", type=int, default=8)
    arguments = parser.parse_args()
    lm = gs.LanguageModel.from_pretrained("smollm2-135m", dtype="float32", device="cpu")
    layout, new, copies = layout_of(arguments.prompt), arguments.new, arguments.copies
    Session(lm, layout_of(64), ATTENTION).fork(2).feed([[5], [6]])
    before = time.process_time()
    read = read_prompt(lm, layout)
    plain_prompt = time.process_time() - before
    greedy, drawn = Sampler(), Sampler(temperature=0.9, top_p=0.95)
    cases: list[tuple[str, Sequence[str], Sampler, int, int, str]] = [
        ("no signals", [], greedy, 1, 1, ""),
        ("no signals, sampled", [], drawn, 1, 1, ""),
        ("attention signals (4)", ATTENTION, greedy, 1, 1, "1.3"),
        ("attention signals (7)", ALL_ATTENTION, greedy, 1, 1, ""),
        ("ReDeEP's scores", REDEEP, greedy, 1, 1, ""),
        (f"{copies} candidates, 4 signals / {copies} plain", ATTENTION, drawn, copies, copies, ""),
        (f"{copies} candidates, 4 signals / 1 plain", ATTENTION, drawn, copies, 1, "3"),
    ]
    print(f"{'what':36}  {'ms/token':>8}  {'x plain':>7}  {'x cpu':>6}  {'fork ms':>7}  {'prompt':>6}  limit")
    for name, signals, sampler, count, others, limit in cases:
        before = time.process_time()
        session = Session(lm, layout, signals)
        prompt = time.process_time() - before
        before = time.perf_counter()
        session = session.fork(count) if count > 1 else session
        fork = time.perf_counter() - before
        each, wall, processor = taking_turns(written(session, sampler), plain(lm, read, others), new)
        print(
            f"{name:36}  {each:8.1f}  {wall:7.2f}  {processor:6.2f}  {1e3 * fork:7.1f}  "
            f"{prompt / plain_prompt:6.2f}  {limit}",
            flush=True,
        )


if __name__ == "__main__":
    main()
