"""Cost of guided decoding beside plain sampling and beside candidates one by one, on the embedded model.

    python benchmarks/bench_guided.py [--prompt 1024] [--new 32] [--candidates 8] [--chunk 8] [--repeat 3]

The prompt is read before the clock starts, except where the sequential way reads it again: as in Lookback Lens'
released code, once for every candidate of the first chunk. What is measured takes turns; a ratio is the median over
the repeats of (seconds per final token / seconds per token of plain sampling). The probe has learnt from a few made-up
labels, since only its cost counts.
"""

from __future__ import annotations

import argparse
import statistics
import time

from bench_generation import layout_of

import groundscope as gs
from groundscope.detectors.learned.lookback_lens import LookbackLens
from groundscope.mitigate.writing.generate import generate
from groundscope.mitigate.writing.guided import guided
from groundscope.mitigate.writing.judging import stretch_score
from groundscope.mitigate.writing.sampler import Sampler
from groundscope.mitigate.writing.session import Session
from groundscope.reading import Reader

DRAWN = Sampler(temperature=0.9, top_p=0.95)


def fitted(lm: gs.LanguageModel) -> LookbackLens:
    examples = [
        gs.Example(
            "When?",
            ("The tower was completed in 1889.",),
            f"It was completed in {1880 + number}, after ten years of work.",
            labels=(gs.Label(0, 20),) if number % 2 else (),
            label_kind="span",
            id=str(number),
            source_id=str(number),
        )
        for number in range(8)
    ]
    detector = LookbackLens()
    return detector.fit(list(Reader(lm, [detector], fingerprint=True).read_many(examples)))


def one_by_one(
    lm: gs.LanguageModel, layout: gs.Layout, detector: LookbackLens, count: int, chunk: int, new: int
) -> int:
    """Candidates one by one, each of the first chunk from a prompt read anew; returns the tokens written."""
    session: Session | None = None
    for stage in range(new // chunk):
        if session is not None and session.ended(0) is not None:
            break
        tried = []
        for number in range(count):
            branch = Session(lm, layout, detector.signals) if session is None else session.fork(1)
            draws = DRAWN.draws(number + 1, stage)
            draws.keep([number])
            first = branch.tokens
            for _ in generate(branch, DRAWN, chunk, draws=draws):
                pass
            if branch.tokens == first:  # it ended at once: nothing to score here
                continue
            tried.append((stretch_score(detector, branch.trace(0), first, branch.tokens), number, branch))
        if not tried:
            break
        session = min(tried, key=lambda item: item[:2])[2]
    return 0 if session is None else session.tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt", type=int, default=1024)
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--candidates", type=int, default=8)
    parser.add_argument("--chunk", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    count, chunk, new = arguments.candidates, arguments.chunk, arguments.new
    lm = gs.LanguageModel.from_pretrained("smollm2-135m", dtype="float32", device="cpu")
    detector, layout = fitted(lm), layout_of(arguments.prompt)
    # Nothing ends an answer here, so that all write the same number of tokens.
    lm.model.generation_config.eos_token_id = None
    plain, listening = Session(lm, layout), Session(lm, layout, detector.signals)

    def sampled() -> int:
        branch = plain.fork(1)
        for _ in generate(branch, DRAWN, new):
            pass
        return branch.tokens

    def steered() -> int:
        answer = guided(listening, detector, candidates=count, chunk=chunk, sampler=DRAWN, max_new_tokens=new)
        for _ in answer:
            pass
        return answer.session.tokens

    ways = {
        "plain sampling": sampled,
        "guided": steered,
        "one by one, as released": lambda: one_by_one(lm, layout, detector, count, chunk, new),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(arguments.repeat):
        for name, way in ways.items():
            start = time.perf_counter()
            written = way()
            seconds[name].append((time.perf_counter() - start) / written)
    print(f"{'what':24}  {'ms/token':>8}  {'x plain':>7}")
    for name, found in seconds.items():
        ratio = statistics.median(mine / base for mine, base in zip(found, seconds["plain sampling"], strict=True))
        print(f"{name:24}  {1e3 * statistics.median(found):8.1f}  {ratio:7.2f}")


if __name__ == "__main__":
    main()
