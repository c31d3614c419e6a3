"""Whether mitigation makes answers better: every strategy on the same questions, written by the embedded model.

    python benchmarks/bench_mitigation.py DATA -o FOLDER [--train 160] [--questions 100] [--skip TEXT] [--report]

DATA holds questions with passages and a right short answer each (records with ``hallucinated`` false); one question
per source is taken. For ``--train`` of them the model writes a greedy and a sampled answer, labelled by whether the
right answer stands in it; the probes that guide learn from these. For ``--questions`` others each strategy writes one
answer. What is finished is kept in FOLDER, so an interrupted run goes on where it was; the order is question by
question, so a part of a run is a fair smaller one, and ``--report`` shows it. A question takes some three minutes on
one core, half of them for guidance by lumina and redeep-token, which look into all layers: ``--skip`` leaves strategies
out, which may be written later; the table is of the questions that all strategies not skipped have answered.

Right is an answer that holds the right one (best-span exact match, as in Lookback Lens): it cannot punish what is
added, so lengths stand beside it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest
from tqdm import tqdm

import groundscope as gs
from groundscope.data.jsonl import file_sha256
from groundscope.data.labelling.gold import contains_answer
from groundscope.detectors.base import Detector
from groundscope.detectors.learned.redeep import ReDeEPToken
from groundscope.detectors.registry import from_name
from groundscope.detectors.saved.folder import load_detector, save_detector
from groundscope.errors import GroundscopeError, InputError
from groundscope.evaluate.metrics.bootstrap import Estimate, Resampler
from groundscope.evaluate.protocol.protocol import evaluate
from groundscope.evaluate.protocol.splits import example_sources
from groundscope.mitigate.aarf.aarf import CODE, PAPER, PAPER_DOLLY, SIGNALS, Preset, aarf
from groundscope.mitigate.writing.generate import end_at_budget, generate
from groundscope.mitigate.writing.guided import guided
from groundscope.mitigate.writing.sampler import Sampler
from groundscope.mitigate.writing.session import Session
from groundscope.outputs.lock import only_writer
from groundscope.reading import Reader
from groundscope.text.words import word_spans
from groundscope.trace.storage.store import TraceStore
from groundscope.train.data import ReadingOptions, records, wanted_signals
from groundscope.train.extraction import Extraction

MODEL, DEVICE, DTYPE = "smollm2-135m", "cpu", "float32"
BUDGET, CANDIDATES, CHUNK, N = 64, 8, 8, 8
TEMPERATURE, TOP_P = 0.9, 0.95
PROBES: dict[str, tuple[str, dict[str, Any]]] = {
    "lookback-lens": ("lookback-lens", {"context": "passages", "units": "response"}),
    "aggtruth sum": ("aggtruth", {"aggregate": "sum", "units": "response"}),
    "aggtruth js": ("aggtruth", {"aggregate": "js", "units": "response"}),
    "redeep-token": ("redeep-token", {}),
    "hidden-state": ("hidden-state", {"units": "response"}),
}
UNTRAINED = ("contrast", "lumina")
BASELINES = ("greedy", "sample")
ALPHA = 0.05


@dataclass(frozen=True)
class Question:
    """One question; its right answer is the example's response."""

    example: gs.Example
    source: str
    seed: int


@dataclass(frozen=True)
class Answer:
    """What a strategy wrote, and facts of its own."""

    text: str
    tokens: int
    ended: str | None
    more: dict[str, Any] = field(default_factory=dict)


Strategy = Callable[[Question], Answer]
Probes = dict[str, Detector]


def questions(path: Path, seed: int) -> list[Question]:
    """One question per source, in an order and with seeds of draws that depend on the file and the seed only."""
    bad: list[Any] = []
    right = [item for item in records(path, bad) if item.hallucinated is False and item.passages]
    if bad or not right:
        raise InputError(f"{str(path)!r} must hold right answers and no bad line. Got {len(right)} and {len(bad)}.")
    first = dict(zip(reversed(example_sources(right)), reversed(right), strict=True))
    rng = np.random.default_rng(seed)
    order = rng.permutation(sorted(first))
    seeds = rng.integers(2**31, size=len(order)).tolist()
    return [Question(first[str(name)], str(name), number) for name, number in zip(order, seeds, strict=True)]


def prepared(folder: Path, settings: dict[str, Any]) -> None:
    """Note the settings, or refuse a folder that was begun with others."""
    path = folder / "settings.json"
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        differing = sorted(name for name in {*before, *settings} if before.get(name) != settings.get(name))
        if differing:
            found = "; ".join(f"{name} was {before.get(name)!r}, is {settings.get(name)!r}" for name in differing)
            raise InputError(f"{str(folder)!r} holds a run with other settings ({found}). Choose another folder.")
    path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def kept(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, without a last line that was cut off."""
    lines = path.read_bytes().rpartition(b"\n")[0].splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def resumed(path: Path) -> list[dict[str, Any]]:
    """The same, and a line that was cut off is removed from the file."""
    if path.exists():
        path.write_bytes(b"".join(path.read_bytes().rpartition(b"\n")[:2]))
    return kept(path)


def append(path: Path, row: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(row, ensure_ascii=False) + "\n")


def written(session: Session, **more: Any) -> Answer:
    end_at_budget(session)
    return Answer(session.text(0), session.length(0), session.ended(0), more)


def plain(lm: gs.LanguageModel, greedy: bool) -> Strategy:
    """Greedy or sampled, without any signal."""
    reader = Reader(lm, [])

    def write(question: Question) -> Answer:
        session = Session(lm, reader.prompt(question.example, "A question", reserve=BUDGET))
        sampler = Sampler(seed=question.seed) if greedy else Sampler(TEMPERATURE, TOP_P, seed=question.seed)
        for _ in generate(session, sampler, BUDGET):
            pass
        return written(session)

    return write


def under_guidance(lm: gs.LanguageModel, detector: Detector) -> Strategy:
    reader = Reader(lm, [detector])

    def write(question: Question) -> Answer:
        session = Session(lm, reader.prompt(question.example, "A question", reserve=BUDGET), detector.signals)
        sampler = Sampler(TEMPERATURE, TOP_P, seed=question.seed)
        counts = {"candidates": CANDIDATES, "chunk": CHUNK, "max_new_tokens": BUDGET}
        found = guided(session, detector, sampler=sampler, **counts)
        for _ in found:
            pass
        return written(found.session)

    return write


def under_aarf(lm: gs.LanguageModel, detector: ReDeEPToken, preset: Preset) -> Strategy:
    reader = Reader(lm, [detector])

    def write(question: Question) -> Answer:
        session = Session(lm, reader.prompt(question.example, "A question", reserve=BUDGET), SIGNALS)
        found = aarf(session, detector, preset, max_new_tokens=BUDGET)
        for _ in found:
            pass
        return written(session, steps=len(found.steps), changed=sum(step.edited for step in found.steps))

    return write


def best_of(lm: gs.LanguageModel, detector: Detector) -> Strategy:
    # Where the line is drawn changes nothing here; given, it is not measured.
    scope = gs.Scope(lm, detector, threshold=0.5, evidence=False)

    def write(question: Question) -> Answer:
        item = question.example
        found = scope.generate(
            item.question, item.passages, "best-of-n", n=N, max_new_tokens=BUDGET, seed=question.seed,
            temperature=TEMPERATURE, top_p=TOP_P,
        )  # fmt: skip
        right = [contains_answer(verdict.response, [item.response]) for verdict in found.verdicts]
        return Answer(found.text, len(found.log.ids), found.ended, {"candidates": right})

    return write


def strategies(lm: gs.LanguageModel, probes: Probes, facts: dict[str, Any], skip: list[str]) -> dict[str, Strategy]:
    untrained, best, redeep = {name: from_name(name) for name in UNTRAINED}, facts["best"], probes["redeep-token"]
    assert isinstance(redeep, ReDeEPToken)
    found = {"greedy": plain(lm, True), "sample": plain(lm, False)}
    found |= {f"guided, {name}": under_guidance(lm, item) for name, item in (probes | untrained).items()}
    for name, preset in {"paper": PAPER, "Dolly": PAPER_DOLLY, "code": CODE}.items():
        found[f"AARF, {name}"] = under_aarf(lm, redeep, preset)
    judges = {best: probes[best], "contrast": untrained["contrast"]}
    found |= {f"best of {N}, {name}": best_of(lm, item) for name, item in judges.items()}
    return {name: way for name, way in found.items() if not any(part in name for part in skip)}


def own_answers(lm: gs.LanguageModel, train: list[Question], folder: Path) -> Path:
    """The file of the model's own answers to the training questions, labelled by the right ones."""
    path = folder / "train.jsonl"
    done = {row["id"] for row in resumed(path)}
    ways = {"greedy": plain(lm, True), "sample": plain(lm, False)}
    jobs = [(item, name, f"{item.example.id}-{name}") for item in train for name in ways]
    left = [job for job in jobs if job[2] not in done]
    for question, name, key in tqdm(left, "training answers", len(jobs), initial=len(done), smoothing=0):
        text, gold = ways[name](question).text, [question.example.response]
        own = replace(
            question.example, response=text, labels=None, id=key, model=f"{lm.name}, {name}", label_kind="response",
            hallucinated=not contains_answer(text, gold), source_id=question.source,
        )  # fmt: skip
        append(path, own.to_dict())
    return path


def trained(lm: gs.LanguageModel, train: list[Question], folder: Path, seed: int) -> tuple[Probes, dict[str, Any]]:
    """The probes, and facts about them: the best by cross-fitted AUROC on the training answers."""
    file = folder / "probes.json"
    if not file.exists():
        path = own_answers(lm, train, folder)
        probes = {name: from_name(kind, **given) for name, (kind, given) in PROBES.items()}
        judges = probes | {name: from_name(name) for name in UNTRAINED}
        options = ReadingOptions(MODEL, device=DEVICE, dtype=DTYPE)
        Extraction(path, folder / "train.traces", list(judges.values()), options=options).execute()
        data = TraceStore(folder / "train.traces").read(wanted_signals(list(judges.values())))
        found = evaluate(data, judges, levels=("response",), seed=seed, progress=True)
        for name, probe in probes.items():
            save_detector(probe.fit(data), folder / "probes" / name)  # type: ignore[attr-defined]
        measured = {row.name: row.at("response") for row in found.rows}
        aurocs = {name: item.auroc for name, item in measured.items() if item is not None and item.auroc is not None}
        values = {name: item.value for name, item in aurocs.items() if name in probes and item.value is not None}
        if not values:
            raise InputError("No probe could be measured. Give more training questions.")
        facts: dict[str, Any] = {"read": len(data), "wrong": found.data["positives"]}
        facts |= {
            "best": max(values, key=values.__getitem__),
        }
        facts["auroc"] = {row.name: asdict(aurocs[row.name]) if row.name in aurocs else None for row in found.rows}
        file.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    probes = {name: load_detector(folder / "probes" / name) for name in PROBES}
    return probes, json.loads(file.read_text(encoding="utf-8"))


def run(ways: dict[str, Strategy], test: list[Question], path: Path) -> None:
    done = {(row["id"], row["strategy"]) for row in resumed(path)}
    jobs = [(item, name) for item in test for name in ways]
    left = [(item, name) for item, name in jobs if (item.example.id, name) not in done]
    for question, name in tqdm(left, "answers", len(jobs), initial=len(done), smoothing=0):
        start = time.perf_counter()
        answer = ways[name](question)
        seconds, gold = time.perf_counter() - start, [question.example.response]
        row = {"id": question.example.id, "source": question.source, "strategy": name}
        row |= {"right": contains_answer(answer.text, gold), "right_words": contains_answer(answer.text, gold, True)}
        row |= {"seconds": seconds, "words": len(word_spans(answer.text)), "tokens": answer.tokens}
        append(path, row | {"ended": answer.ended, **answer.more, "text": answer.text})


class Results:
    """The rows of the questions that every strategy has answered."""

    def __init__(self, rows: list[dict[str, Any]], names: list[str]) -> None:
        self.names = names
        by_id: dict[str, dict[str, dict[str, Any]]] = {}
        for row in rows:
            if row["strategy"] in names:
                by_id.setdefault(row["id"], {})[row["strategy"]] = row
        self.answered = [found for found in by_id.values() if len(found) == len(names)]
        if not self.answered:
            raise InputError("No question has been answered by every strategy yet. Let the run go on.")
        self._resampler = Resampler([found["greedy"]["source"] for found in self.answered], 10_000)

    def values(self, name: str, key: str) -> np.ndarray:
        """One number per question."""
        return np.array([found[name][key] for found in self.answered], dtype=np.float64)

    def mean(self, values: np.ndarray) -> Estimate:
        """A mean over questions, which are as many in every resample, with its bootstrap interval."""
        totals = self._resampler.sums(self._resampler.codes, values[:, None])[:, 0]
        return self._resampler.estimate(float(values.mean()), totals / len(values))

    def against(self, name: str, base: str) -> tuple[float, int, int, float]:
        """Difference of exact match, questions won and lost, and the p-value of McNemar's exact test."""
        gaps = self.values(name, "right") - self.values(base, "right")
        won, lost = int((gaps > 0).sum()), int((gaps < 0).sum())
        p = float(binomtest(won, won + lost).pvalue) if won + lost else 1.0
        return float(gaps.mean()), won, lost, p


def percent(found: Estimate) -> str:
    interval = "" if found.low is None or found.high is None else f" [{100 * found.low:.1f}, {100 * found.high:.1f}]"
    return f"{100 * (found.value or 0.0):.1f}{interval}"


def table(results: Results) -> Iterator[str]:
    against = " | ".join(f"to {base} (won, lost; p)" for base in BASELINES)
    yield f"| strategy | exact match, % | whole words, % | {against} | s/answer | words | tokens | ends by itself, % |"
    yield "|---" * 9 + "|"
    for name in results.names:
        whole = results.values(name, "right_words").mean()
        cells = [name, percent(results.mean(results.values(name, "right"))), f"{100 * whole:.1f}"]
        for base in BASELINES:
            gap, won, lost, p = results.against(name, base)
            cells.append("" if name == base else f"{100 * gap:+.1f} ({won}, {lost}; {p:.3f})")
        cells.append(f"{results.values(name, 'seconds').mean():.2f}")
        cells += [f"{results.values(name, key).mean():.1f}" for key in ("words", "tokens")]
        cells.append(f"{100 * np.mean([found[name]['ended'] == 'end' for found in results.answered]):.0f}")
        yield f"| {' | '.join(cells)} |"


def sentences(results: Results) -> Iterator[str]:
    """What did not help, and what to know about the figures."""
    others = [name for name in results.names if name not in BASELINES]
    count = len(others) * len(BASELINES)
    for name in others:
        told = []
        for base in BASELINES:
            gap, _, _, p = results.against(name, base)
            if gap > 0 and p < ALPHA / count:
                continue
            better = "beats (without correction only)" if p < ALPHA else "has not been shown to beat"
            worse = "is worse than" if p < ALPHA else "is not better than"
            word = better if gap > 0 else worse
            told.append(f"{word} {base} ({100 * gap:+.1f} points, p {p:.3f})")
        if told:
            yield f"- {name} {', and '.join(told)}."
        if name.startswith("best of"):
            drawn = np.array([found[name]["candidates"] for found in results.answered], dtype=np.float64)
            yield (
                f"- {name}: of the {drawn.shape[1]} drawn answers {percent(results.mean(drawn.mean(axis=1)))} % are "
                f"right; a judge that is never wrong would reach {percent(results.mean(drawn.max(axis=1)))} %."
            )
        if name.startswith("AARF"):
            steps, changed = results.values(name, "steps").sum(), results.values(name, "changed").sum()
            yield f"- {name} changed {100 * changed / max(1, steps):.0f} % of the steps."
    yield f"- p-values are of McNemar's exact test, uncorrected; Bonferroni's line is {ALPHA} / {count}."


def report(folder: Path, wanted: int, skip: list[str]) -> None:
    rows = kept(folder / "answers.jsonl")
    names = dict.fromkeys(row["strategy"] for row in rows)
    results = Results(rows, [name for name in names if not any(part in name for part in skip)])
    facts = json.loads((folder / "probes.json").read_text(encoding="utf-8"))
    lines = [f"{len(results.answered)} of {wanted} questions, answers of at most {BUDGET} tokens by {MODEL}.", ""]
    lines += [*table(results), "", *sentences(results), ""]
    lines += [f"Probes learnt from {facts['read']} of the model's own answers, {facts['wrong']} of them wrong.", ""]
    lines += ["| on these, cross-fitted | response AUROC, % |", "|---|---|"]
    for name, found in facts["auroc"].items():
        lines.append(f"| {name} | {'' if found is None else percent(Estimate(**found))} |")
    text = "\n".join(lines) + "\n"
    (folder / "table.md").write_text(text, encoding="utf-8")
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--train", type=int, default=160, help="questions that the probes learn from")
    parser.add_argument("--questions", type=int, default=100, help="questions that strategies are compared on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skip", action="append", default=[], help="leave out strategies with this in their name")
    parser.add_argument("--report", action="store_true", help="only report what was written so far")
    options = parser.parse_args()
    folder = options.output
    settings = {"model": MODEL, "train": options.train, "seed": options.seed}
    settings |= {"data": file_sha256(options.data), "budget": BUDGET, "candidates": CANDIDATES, "chunk": CHUNK, "n": N}
    settings |= {"temperature": TEMPERATURE, "top_p": TOP_P, "version": gs.__version__}
    try:
        everything = questions(options.data, options.seed)
        if min(options.train, options.questions) < 1 or options.train + options.questions > len(everything):
            raise InputError(f"--train and --questions must be at least 1, together at most {len(everything)}.")
        folder.mkdir(parents=True, exist_ok=True)
        prepared(folder, settings)
        if not options.report:
            with only_writer(folder / "run"):
                lm = gs.LanguageModel.from_pretrained(MODEL, dtype=DTYPE, device=DEVICE)
                probes, facts = trained(lm, everything[-options.train :], folder, options.seed)
                ways = strategies(lm, probes, facts, options.skip)
                run(ways, everything[: options.questions], folder / "answers.jsonl")
        report(folder, options.questions, options.skip)
    except GroundscopeError as exc:
        sys.exit(str(exc))
    except KeyboardInterrupt:
        sys.exit("Interrupted. The same command goes on; with --report it shows what there is.")


if __name__ == "__main__":
    main()
