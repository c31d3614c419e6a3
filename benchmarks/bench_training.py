"""Time and memory of training every probe from one trace store of 600 responses.

    python benchmarks/bench_training.py [STORE]

Without a store one is made first, with drawn signals of the embedded model's shape (30 layers of 9 heads, 576
channels, responses of 20 to 160 tokens): what is learnt from it means nothing, what it costs is what real ones
cost. The clock runs from opening the store to the last fitted detector.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from groundscope.detectors.registry import from_name
from groundscope.example import Example, Label
from groundscope.lm.prompt.layout import Layout
from groundscope.trace.signals import spec_of
from groundscope.trace.storage.store import TraceWriter, is_store
from groundscope.trace.trace import Trace
from groundscope.trace.traced import TracedExample
from groundscope.train.data import open_data
from groundscope.train.fitting import train_detector

RESPONSES, LAYERS, HEADS, CHANNELS = 600, 30, 9, 576
NAMES = (
    ("lookback-lens", {}),
    ("lookback-lens", {"context": "passages"}),
    *(("aggtruth", {"aggregate": name}) for name in ("sum", "cosine", "entropy", "js")),
    ("hidden-state", {}),
    ("saplma", {}),
    ("redeep-token", {}),
)


def drawn(number: int, signals: list[str], fingerprint: dict[str, str]) -> TracedExample:
    rng = np.random.default_rng(number)
    tokens = int(rng.integers(20, 160))
    words = [f"w{value:03d}" for value in rng.integers(0, 999, tokens)]
    response = " ".join(words)
    starts = np.arange(tokens) * 5
    labels = ()
    if number % 5 == 0:
        first = int(rng.integers(0, tokens - 8))
        labels = (Label(int(starts[first]), int(starts[first + 7]) + 4, "drawn"),)
    example = Example(
        "q", (f"passage {number // 6}",), response, labels=labels, id=str(number), source_id=str(number // 6),
        label_kind="span", task="qa",
    )  # fmt: skip
    layout = Layout.from_ids(
        np.arange(300) + 1, np.arange(tokens) + 1, passages=[(20, 280)], header=(295, 300),
        response=response, response_offsets=np.stack([starts, starts + 4], axis=1),
    )  # fmt: skip
    shapes = {
        "token": (tokens,), "token x layer": (tokens, LAYERS), "token x layer x head": (tokens, LAYERS, HEADS),
        "token x channel": (tokens, CHANNELS),
    }  # fmt: skip
    arrays = {name: rng.random(shapes[spec_of(name).axes], dtype=np.float32) for name in signals}
    return TracedExample(example, Trace(layout, arrays, "drawn", tuple(range(LAYERS)), fingerprint=fingerprint))


def make_store(folder: Path) -> Path:
    fingerprint = {"model": "drawn", "weights": "drawn", "architecture": "drawn"}
    detectors = [from_name(name, **params) for name, params in NAMES]
    signals = list(dict.fromkeys(signal for detector in detectors for signal in detector.signals))
    writer = TraceWriter(folder, {"fingerprint": fingerprint})
    for number in range(RESPONSES):
        writer.write(number, drawn(number, signals, fingerprint))
    writer.finish([])
    return folder


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        given = Path(sys.argv[1]) if len(sys.argv) > 1 else None
        store = given if given is not None and is_store(given) else make_store(Path(place) / "traces")
        start = time.perf_counter()
        for name, params in NAMES:
            began = time.perf_counter()
            detector = from_name(name, **params)
            data = open_data(store, [detector]).traced
            train_detector(detector, data)
            print(f"{detector!r}: {time.perf_counter() - began:.1f} s", flush=True)
        total = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"all {len(NAMES)} from {len(data)} responses: {total:.0f} s (goal 180), peak {peak:.2f} GiB (goal 4)")


if __name__ == "__main__":
    main()
