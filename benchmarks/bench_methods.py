"""Every detector and every control on labelled data, read by the embedded model, as one honest table per data set.

    python benchmarks/bench_methods.py DATA... -o FOLDER [--sources N] [--test DATA] [--dtype bfloat16]
        [--asked | --nli FOLDER]

Each file is read once into a trace store (FOLDER/NAME.traces, or NAME.N.traces; a run that was interrupted goes
on), then all detectors that need no samples, questions or other models are cross-fitted by source and measured
beside the controls; FOLDER/NAME holds the full report. Where only whole answers are labelled, probes learn from whole
answers. --test fits on the first DATA and measures on another file: a transfer between data sets. --asked runs those
detectors that sample answers or ask the model instead of the others, --nli the one that asks a classifier of sentence
pairs, into stores and reports of their own; the answers and the folds are the same, and the table that is printed holds
the rows of all these reports.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from groundscope.detectors.base import Detector
from groundscope.detectors.registry import from_name
from groundscope.errors import GroundscopeError
from groundscope.evaluate.metrics.bootstrap import Estimate
from groundscope.evaluate.protocol.protocol import evaluate
from groundscope.evaluate.results.results import Evaluation, Row
from groundscope.report.evaluation.folder import write_report
from groundscope.trace.storage.store import TraceStore
from groundscope.trace.traced import TracedExample
from groundscope.train.data import ReadingOptions, records, wanted_signals
from groundscope.train.extraction import Extraction

PLAIN = ("contrast", "lumina", "entropy", "perplexity", "energy", "max-surprise")
ASKED = ("selfcheck", "eigenscore", "p-true")
SUFFIXES = ("", ".asked", ".nli")
AGGREGATES = ("sum", "cosine", "entropy", "js")


@dataclass(frozen=True)
class Choice:
    """Which detectors run: those that one pass per document suffices for, or all that ask the model or a classifier."""

    asked: bool = False
    nli: Path | None = None

    @property
    def suffix(self) -> str:
        """What stores and reports of this choice end in."""
        return ".asked" if self.asked else ".nli" if self.nli else ""


def detectors(units: str, choice: Choice) -> dict[str, Detector]:
    """Return the detectors that run; probes learn from ``units``."""
    if choice.asked:
        return {name: from_name(name) for name in ASKED}
    if choice.nli:
        return {"nli": from_name("nli", model=str(choice.nli))}
    found: dict[str, Detector] = {name: from_name(name) for name in PLAIN}
    for calibration in ("zscore", "rank"):
        found[f"lumina, {calibration}"] = from_name("lumina", calibration=calibration)
    found["lookback-lens"] = from_name("lookback-lens", units=units)
    found["lookback-lens, passages"] = from_name("lookback-lens", units=units, context="passages")
    found["lookback-lens, official"] = from_name("lookback-lens", units=units, variant="official")
    for aggregate in AGGREGATES:
        found[f"aggtruth, {aggregate}"] = from_name("aggtruth", units=units, aggregate=aggregate)
    found["aggtruth, sum, all heads"] = from_name("aggtruth", units=units, selector=None)
    found["hidden-state"] = from_name("hidden-state", units=units)
    found["redeep-token"] = from_name("redeep-token")
    found["redeep-chunk"] = from_name("redeep-chunk")
    found["saplma"] = from_name("saplma")
    return found


def subset(path: Path, sources: int | None, folder: Path) -> Path:
    """Write the records of the first so many sources, in the file's order."""
    if sources is None:
        return path
    examples = list(records(path, []))
    kept = set(list(dict.fromkeys(example.group for example in examples))[:sources])
    target = folder / f"{path.name.split('.')[0]}.{sources}.jsonl"
    lines = [json.dumps(example.to_dict(), ensure_ascii=False) for example in examples if example.group in kept]
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return target


def traces(path: Path, folder: Path, dtype: str | None, choice: Choice) -> list[TracedExample]:
    """Read a file into a store, or what is missing of it, and return what the detectors need."""
    store = folder / f"{path.name.removesuffix('.gz').removesuffix('.jsonl')}{choice.suffix}.traces"
    wanted = list(detectors("window", choice).values())
    run = Extraction(path, store, wanted, options=ReadingOptions(dtype=dtype))
    start = time.monotonic()
    run.execute()
    print(f"{path.name}: {run}; read in {time.monotonic() - start:.0f} s", flush=True)
    return TraceStore(store).read(wanted_signals(wanted))


def shown(estimate: Estimate | None) -> str:
    if estimate is None or estimate.value is None:
        return ""
    interval = "" if estimate.low is None else f" [{estimate.low:.3f}, {estimate.high:.3f}]"
    return f"{estimate.value:.3f}{interval}".replace("0.", ".")


def reported(folder: Path, base: str) -> list[Row]:
    """Return the rows of all reports on the same answers, each name once."""
    found: dict[str, Row] = {}
    for suffix in SUFFIXES:
        path = folder / f"{base}{suffix}" / "results.json"
        if path.exists():
            for row in Evaluation.from_dict(json.loads(path.read_text(encoding="utf-8"))).rows:
                found.setdefault(row.name, row)
    return list(found.values())


def table(found: Sequence[Row]) -> str:
    lines = [
        "| | response AUROC | within generator | AUPRC | window AUROC | within generator | token AUROC | span F1 |",
        "|---" * 8 + "|",
    ]
    rows = sorted(found, key=lambda row: -(_auroc(row) or 0.0))
    for row in rows:
        if row.failure is not None:
            lines.append(f"| {row.name} | {row.failure} | | | | | | |")
            continue
        name = f"*control: {row.name}*" if row.kind == "control" else row.name
        levels = {level: row.at(level) for level in ("response", "window", "token", "span")}
        cells = [shown(levels["response"].auroc if levels["response"] else None), within(row, "response")]
        cells.append(shown(levels["response"].auprc if levels["response"] else None).split(" ")[0])
        cells += [shown(levels["window"].auroc if levels["window"] else None), within(row, "window")]
        cells.append(shown(levels["token"].auroc if levels["token"] else None))
        cells.append(shown(levels["span"].f1 if levels["span"] else None).split(" ")[0])
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def within(row: Row, level: str) -> str:
    """Mean AUROC over the models that wrote, weighted by their units."""
    macro = row.macro(level, "generator")
    return shown(None if macro is None else macro.weighted)


def _auroc(row: Row) -> float | None:
    measured = row.at("response")
    return None if measured is None or measured.auroc is None else measured.auroc.value


def units_for(examples: list[TracedExample]) -> str:
    return "response" if any(item.example.label_kind == "response" for item in examples) else "window"


def report(name: str, found: Evaluation, folder: Path, seconds: float) -> None:
    write_report(found, folder / name, overwrite=True)
    facts = found.data
    print(f"\n## {name}: {facts['examples']} answers, {facts['positives']} hallucinated, {facts['sources']} sources")
    print(f"(fitted and measured in {seconds:.0f} s)\n")
    print(table(reported(folder, name.partition(".")[0])))
    for finding in found.findings:
        print(f"- {finding}")
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--sources", type=int, help="only the first so many sources of each file")
    parser.add_argument("--test", type=Path, help="measure on this, fit on the first DATA")
    parser.add_argument("--dtype", help="type of the reading model's weights")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--asked", action="store_true", help="detectors that sample answers or ask the model")
    chosen.add_argument("--nli", type=Path, help="entailment, by the classifier in this folder")
    arguments = parser.parse_args()
    choice = Choice(arguments.asked, arguments.nli)
    arguments.output.mkdir(parents=True, exist_ok=True)
    read = {}
    for path in [*arguments.data, *([arguments.test] if arguments.test else [])]:
        read[path] = traces(
            subset(path, arguments.sources, arguments.output), arguments.output, arguments.dtype, choice
        )
    jobs = [(path.name.split(".")[0] + choice.suffix, read[path], None) for path in arguments.data]
    if arguments.test:
        first = arguments.data[0]
        name = f"{first.name.split('.')[0]}-to-{arguments.test.name.split('.')[0]}{choice.suffix}"
        jobs = [(name, read[first], read[arguments.test])]
    for name, data, test in jobs:
        start = time.monotonic()
        try:
            found = evaluate(data, detectors(units_for(data), choice), test=test, progress=True)
        except GroundscopeError as exc:
            print(f"{name}: {exc}", flush=True)
            continue
        report(name, found, arguments.output, time.monotonic() - start)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    main()
