"""Every untrained detector beside three controls, with confidence intervals clustered by source.

    python benchmarks/bench_detectors.py DATA.jsonl[.gz] [--limit N] [--traces FILE.npz]

AUROC of the response score against the label "hallucinated", pooled and as the mean within generators;
AUROC of smoothed token scores where labels are spans. Intervals are percentile bootstraps over sources
(passages). Controls: the task's rate (by task, on other sources), the response's number of words, and word
novelty, the share of its words that stand in neither passages nor question. Examples whose answer is also in
the shipped threshold sample are left out, and answers that decline are not scored.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from sklearn.metrics import roc_auc_score
from tqdm import tqdm

import groundscope as gs
from groundscope.data.contrast import draw_contrast
from groundscope.data.jsonl import read_records
from groundscope.detectors.registry import from_name, names
from groundscope.detectors.thresholds import reference_sample
from groundscope.text.refusals import is_refusal
from groundscope.text.spans import smooth

WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    return [word.lower() for word in WORD.findall(text)]


def novelty(example: gs.Example) -> float:
    known = set(words(" ".join((example.question, *example.passages))))
    own = words(example.response)
    return sum(word not in known for word in own) / max(1, len(own))


def source_of(example: gs.Example) -> str:
    return example.source_id or "\0".join(example.passages)


def task_rates(examples: Sequence[gs.Example], labels: np.ndarray) -> np.ndarray:
    """Rate of hallucination in the same task, from other sources."""
    sources = np.array([source_of(e) for e in examples])
    tasks = np.array([e.task or "" for e in examples])
    if len(set(tasks)) == 1:
        return np.full(len(examples), labels.mean())  # one task tells nothing
    rates = np.zeros(len(examples))
    for i in range(len(examples)):
        others = (tasks == tasks[i]) & (sources != sources[i])
        rates[i] = labels[others].mean() if others.any() else labels.mean()
    return rates


def auroc(labels: np.ndarray, scores: np.ndarray) -> float:
    return float(roc_auc_score(labels, scores)) if 0 < labels.sum() < len(labels) else float("nan")


def within(groups: np.ndarray, labels: np.ndarray, scores: np.ndarray) -> float:
    """Mean AUROC over groups that hold both classes."""
    values = [auroc(labels[groups == g], scores[groups == g]) for g in np.unique(groups)]
    return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")


def interval(sources: np.ndarray, statistic: Callable[[np.ndarray], float], draws: int = 1000) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    members = [np.flatnonzero(sources == s) for s in np.unique(sources)]
    values = []
    for _ in range(draws):
        picked = np.concatenate([members[i] for i in rng.integers(len(members), size=len(members))])
        values.append(statistic(picked))
    low, high = np.nanquantile(values, (0.025, 0.975))
    return float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="float32")
    arguments = parser.parse_args()
    records = [record for record in read_records(arguments.data) if isinstance(record, gs.Example)]
    shipped = {item.response for item in reference_sample()}
    chosen = [e for e in records if e.hallucinated is not None and not is_refusal(e.response)]
    chosen = [e for e in chosen if e.response.strip() and e.response not in shipped]
    if arguments.limit:
        chosen = [chosen[i] for i in np.random.default_rng(0).permutation(len(chosen))[: arguments.limit]]
    lm = gs.LanguageModel.from_pretrained(arguments.model, dtype=arguments.dtype)
    renderer = lm.renderer()
    detectors = [from_name(name) for name in names()]
    signals = sorted({signal for detector in detectors for signal in detector.signals})
    scores: dict[str, list[float]] = defaultdict(list)
    token_scores: dict[str, list[np.ndarray]] = defaultdict(list)
    token_labels: list[np.ndarray] = []
    for example in tqdm(chosen, unit="answer"):
        layout = renderer.layout(example, [draw_contrast(example, records).passages])
        trace = lm.trace(layout, signals)
        for detector in detectors:
            values = detector.token_scores(trace)
            scores[detector.name].append(detector.response_score(values))
            token_scores[detector.name].append(smooth(values, detector.window))
        spans = example.labels or ()
        token_labels.append(
            np.array([any(s < lab.end and lab.start < e for lab in spans) for s, e in layout.response_offsets])
        )
    labels = np.array([bool(e.hallucinated) for e in chosen])
    sources = np.array([source_of(e) for e in chosen])
    generators = np.array([e.model or "" for e in chosen])
    columns = {name: np.array(values) for name, values in scores.items()}
    columns["control: task"] = task_rates(chosen, labels)
    columns["control: words"] = np.array([len(words(e.response)) for e in chosen], dtype=float)
    columns["control: novelty"] = np.array([novelty(e) for e in chosen])
    by_span = all(e.label_kind == "span" for e in chosen)
    print(f"{arguments.data}: {len(chosen)} answers, {labels.sum()} hallucinated, {len(set(sources))} sources")
    print(f"{'':18}{'pooled':>8}{'95 % interval':>16}{'within generator':>18}{'token':>8}")
    for name, values in columns.items():
        low, high = interval(sources, lambda i, v=values: auroc(labels[i], v[i]))
        token = ""
        if by_span and name in token_scores:
            token = f"{auroc(np.concatenate(token_labels), np.concatenate(token_scores[name])):.3f}"
        inner = within(generators, labels, values)
        print(f"{name:18}{auroc(labels, values):8.3f}   [{low:.3f}, {high:.3f}]{inner:18.3f}{token:>8}")


if __name__ == "__main__":
    main()
