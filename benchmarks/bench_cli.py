"""Whole-process times of the command line: help, and one short example on the cached embedded model.

python benchmarks/bench_cli.py [--repeats 3]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

SCORE = [
    "score",
    "--question",
    "When was it completed?",
    "--passage",
    "The tower was completed in 1889.",
    "--response",
    "It was completed in 1887.",
    "--exit-zero",
]


def seconds(arguments: Sequence[str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "groundscope", *arguments], check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    for name, arguments, limit in (("groundscope --help", ["--help"], 1), ("groundscope score, short", SCORE, 8)):
        seconds(arguments)
        median = statistics.median(seconds(arguments) for _ in range(repeats))
        print(f"{name:28}{median:6.2f} s   limit {limit} s")


if __name__ == "__main__":
    main()
