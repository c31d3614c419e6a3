"""Audit of a data set: what is wrong with it, what leaks, and what its labels give away without any model."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from groundscope.data.checking.label_faults import FAULTS, kind_name, label_faults, label_of
from groundscope.data.checking.overlap import Context, contexts_of, near_pairs, normal
from groundscope.data.jsonl import BadRecord
from groundscope.errors import InputError
from groundscope.example import Example
from groundscope.text.controls import response_words, word_novelty

STRONG_CONTROL = 0.65  # AUROC from which on a trivial predictor is called strong
_NO_SPLIT = "(no split)"
_SHOWN = 10
_FOLDS = 5


@dataclass(frozen=True)
class Finding:
    """Something that was found.

    Attributes:
        name: What it is, in a few words.
        problem: Whether the data are wrong or leak; otherwise it is a warning.
        count: How many examples, sources or pairs it concerns.
        message: What it means.
        where: Ids of examples or places, ten at most.
    """

    name: str
    problem: bool
    count: int
    message: str
    where: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rate:
    """How many examples of a part are labelled and hallucinated."""

    examples: int
    labelled: int
    hallucinated: int

    @property
    def rate(self) -> float | None:
        """Share of the labelled that is hallucinated."""
        return self.hallucinated / self.labelled if self.labelled else None


@dataclass(frozen=True)
class AuditReport:
    """The result of :func:`audit`.

    Attributes:
        examples: How many examples could be read.
        sources: How many groups of the same context they form.
        findings: Problems first.
        rates: By ``all``, ``task``, ``model`` (the generator) and ``split``: base rates of the values.
        lengths: Median and 95th percentile of words, of contexts and responses.
        label_kinds: How many examples have labels of which kind.
        controls: AUROC of predictors that read no model: ``response words``, ``word novelty``, ``task only``,
            ``generator only``; ``None`` where one class or one value only is there.
    """

    examples: int
    sources: int
    findings: tuple[Finding, ...]
    rates: Mapping[str, Mapping[str, Rate]]
    lengths: Mapping[str, Mapping[str, float]]
    label_kinds: Mapping[str, int]
    controls: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings that are not mere warnings."""
        return tuple(finding for finding in self.findings if finding.problem)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        record = asdict(self)
        for values in record["rates"].values():
            for value in values.values():
                value["rate"] = value["hallucinated"] / value["labelled"] if value["labelled"] else None
        return record | {"problems": len(self.problems)}


def audit(
    records: Iterable[Example | BadRecord], against: Mapping[str, Iterable[Example | BadRecord]] | None = None
) -> AuditReport:
    """Look for label errors, duplicates, leaks between splits, and labels that words alone predict.

    Args:
        records: What a reader yields.
        against: Other sets by name (training data, say) that ``records`` should not overlap with. Each counts
            as a split of its own; only overlaps with ``records`` are looked for.

    Raises:
        InputError: If there is no example.
    """
    examples: list[Example] = []
    bad: list[BadRecord] = []
    for record in records:
        if isinstance(record, BadRecord):
            bad.append(record)
        else:
            examples.append(record)
    if not examples:
        first = f" The first record: {bad[0].error}" if bad else ""
        raise InputError(f"There is no example to audit; {len(bad)} records could not be read.{first}")
    placed = [(example.split or _NO_SPLIT, example) for example in examples]
    own = {split for split, _ in placed}
    for name, others in (against or {}).items():
        placed += [(f"other set {name}", other) for other in others if isinstance(other, Example)]
    findings = [*_unreadable(bad), *_label_findings(examples), *_answers(examples)]
    findings += _overlaps(placed, own)
    controls = _controls(examples)
    findings += _class_findings(examples, controls)
    findings.sort(key=lambda finding: not finding.problem)
    contexts = [sum(len(passage.split()) for passage in example.passages) for example in examples]
    responses = [len(example.response.split()) for example in examples]
    return AuditReport(
        examples=len(examples),
        sources=len({example.group for example in examples}),
        findings=tuple(findings),
        rates={
            "all": {"all": _rate(examples)},
            "task": _rates(examples, lambda example: example.task),
            "model": _rates(examples, lambda example: example.model),
            "split": _rates(examples, lambda example: example.split),
        },
        lengths={"context": _percentiles(contexts), "response": _percentiles(responses)},
        label_kinds=dict(Counter(kind_name(example) for example in examples)),
        controls=controls,
    )


def _unreadable(bad: Sequence[BadRecord]) -> list[Finding]:
    if not bad:
        return []
    where = tuple(f"record {record.line}: {record.error}" for record in bad[:_SHOWN])
    message = "records cannot be read (broken JSON, missing fields, offsets outside the response, repeated ids)"
    return [Finding("not readable", True, len(bad), message, where)]


def _label_findings(examples: Sequence[Example]) -> list[Finding]:
    found: dict[str, list[str]] = defaultdict(list)
    for example in examples:
        for name in label_faults(example):
            found[name].append(example.id or "")
    return [
        Finding(name, problem, len(found[name]), message, tuple(found[name][:_SHOWN]))
        for name, (problem, message) in FAULTS.items()
        if name in found
    ]


def _answers(examples: Sequence[Example]) -> list[Finding]:
    """Find answers that are given more than once."""
    by_answer: dict[str, list[Example]] = defaultdict(list)
    for example in examples:
        by_answer[normal([example.response])].append(example)
    by_answer.pop("", None)
    repeated, contradictory, reused = [], [], []
    for alike in by_answer.values():
        by_context: dict[str, list[Example]] = defaultdict(list)
        for example in alike if len(alike) > 1 else ():
            by_context[normal([example.question, *example.passages])].append(example)
        if len(by_context) > 1:
            reused.append(next(iter(by_context.values()))[0])
        for same in by_context.values():
            if len(same) > 1:
                repeated.append(same[0])
                if len({label_of(example) for example in same} - {None}) > 1:
                    contradictory.append(same[0])
    rows = (
        ("contradictory labels", True, contradictory, "the same answer to the same context has both labels"),
        (
            "repeated examples",
            False,
            repeated,
            "the same answer to the same question and context stands more than once",
        ),
        ("repeated answers", False, reused, "the same answer is given to different contexts (refusals, stock phrases)"),
    )
    return [Finding(name, problem, len(these), text, _ids(these)) for name, problem, these, text in rows if these]


def _overlaps(placed: Sequence[tuple[str, Example]], own: set[str]) -> list[Finding]:
    """Find sources and contexts in more than one split, and contexts that grouping by source does not hold together."""
    found = []
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    for split, example in placed:
        groups[example.group].setdefault(split, example.id or "")
    shared = [places for places in groups.values() if _crosses(places, own)]
    if shared:
        text = "a source is in more than one split: " + _pairs(shared)
        found.append(Finding("source in several splits", True, len(shared), text, _places(shared)))
    contexts = contexts_of(placed)
    same = [item for item in contexts if len(item.groups) > 1]
    leaks = [item.ids for item in same if _crosses(item.ids, own)]
    if leaks:
        text = "the same context is in more than one split under different sources: " + _pairs(leaks)
        found.append(Finding("context in several splits", True, len(leaks), text, _places(leaks)))
    inside = [item.ids for item in same if not _crosses(item.ids, own) and item.splits & own]
    if inside:
        text = "the same context has several source ids; splits by source may tear it apart"
        found.append(Finding("context under several sources", False, len(inside), text, _places(inside)))
    return found + _near_findings(contexts, own)


def _near_findings(contexts: list[Context], own: set[str]) -> list[Finding]:
    across, inside = [], []
    for first, second in near_pairs(contexts):
        if first.groups & second.groups or not (first.splits | second.splits) & own:
            continue
        apart = {split: name for split, name in second.ids.items() if split not in first.ids}
        if apart and _crosses({**first.ids, **apart}, own):
            across.append({**first.ids, **apart})
        else:
            inside.append({"": f"{next(iter(first.ids.values()))} ~ {next(iter(second.ids.values()))}"})
    found = []
    if across:
        text = "nearly the same context is in more than one split: " + _pairs(across)
        found.append(Finding("near-duplicate in several splits", True, len(across), text, _places(across)))
    if inside:
        text = "contexts are nearly the same under different sources; splits by source may tear them apart"
        found.append(Finding("near-duplicate contexts", False, len(inside), text, _places(inside)))
    return found


def _crosses(places: Mapping[str, str], own: set[str]) -> bool:
    return len(places) > 1 and bool(places.keys() & own)


def _pairs(found: Iterable[Mapping[str, str]]) -> str:
    counts = Counter(" and ".join(sorted(places)) for places in found)
    return "; ".join(f"{pair} ({count})" for pair, count in counts.most_common())


def _places(found: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    return tuple(", ".join(name for _, name in sorted(places.items())) for places in found[:_SHOWN])


def _ids(examples: Sequence[Example]) -> tuple[str, ...]:
    return tuple(example.id or "" for example in examples[:_SHOWN])


def _class_findings(examples: Sequence[Example], controls: Mapping[str, float | None]) -> list[Finding]:
    labels = {label_of(example) for example in examples} - {None}
    found = []
    if len(labels) == 1:
        found.append(Finding("one class", False, len(examples), "all labelled examples are of one class"))
    for name, value in controls.items():
        if value is not None and max(value, 1 - value) > STRONG_CONTROL:
            text = f"AUROC {value:.3f}: the labels can be told from this alone; report it beside every detector"
            found.append(Finding(f"strong control: {name}", False, len(examples), text))
    return found


def _controls(examples: Sequence[Example]) -> dict[str, float | None]:
    pairs = [(example, label) for example in examples if (label := label_of(example)) is not None]
    chosen, labels = [example for example, _ in pairs], [label for _, label in pairs]
    return {
        "response words": _auroc(labels, [response_words(example) for example in chosen]),
        "word novelty": _auroc(labels, [word_novelty(example) for example in chosen]),
        "task only": _part_auroc(chosen, labels, lambda example: example.task),
        "generator only": _part_auroc(chosen, labels, lambda example: example.model),
    }


def _part_auroc(
    examples: Sequence[Example], labels: Sequence[bool], key: Callable[[Example], str | None]
) -> float | None:
    """Return how well the base rate of an example's part, learnt from other sources, tells its label.

    Sources are dealt into folds. Answers are compared within their fold only, where all see the same rates: a
    rate that leaves out each answer on its own is lowest where the answer is hallucinated, and would tell less
    than nothing. ``None`` for a single part.
    """
    if len({key(example) for example in examples}) < 2:
        return None
    fold_of = {group: index % _FOLDS for index, group in enumerate(sorted({example.group for example in examples}))}
    counts: dict[str | None, list[Counter[bool]]] = defaultdict(lambda: [Counter() for _ in range(_FOLDS)])
    members: list[list[int]] = [[] for _ in range(_FOLDS)]
    for index, (example, label) in enumerate(zip(examples, labels, strict=True)):
        counts[key(example)][fold_of[example.group]][label] += 1
        members[fold_of[example.group]].append(index)
    overall = sum(labels) / len(labels)
    total, pairs = 0.0, 0
    for fold, indices in enumerate(members):
        rates = {}
        for part, by_fold in counts.items():
            others = sum((count for other, count in enumerate(by_fold) if other != fold), Counter[bool]())
            rates[part] = others[True] / others.total() if others.total() else overall
        own = [labels[index] for index in indices]
        value = _auroc(own, [rates[key(examples[index])] for index in indices])
        if value is not None:
            weight = sum(own) * (len(own) - sum(own))
            total, pairs = total + weight * value, pairs + weight
    return total / pairs if pairs else None


def _auroc(labels: Sequence[bool], scores: Sequence[float]) -> float | None:
    if len(set(labels)) < 2:
        return None
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(labels, scores))


def _rates(examples: Sequence[Example], key: Callable[[Example], str | None]) -> dict[str, Rate]:
    parts: dict[str, list[Example]] = defaultdict(list)
    for example in examples:
        parts[key(example) or "(none)"].append(example)
    return {name: _rate(parts[name]) for name in sorted(parts)}


def _rate(examples: Sequence[Example]) -> Rate:
    labels = [label for example in examples if (label := label_of(example)) is not None]
    return Rate(len(examples), len(labels), sum(labels))


def _percentiles(values: Sequence[int]) -> dict[str, float]:
    ordered = sorted(values)
    return {"median": float(statistics.median(ordered)), "p95": float(ordered[int(0.95 * (len(ordered) - 1))])}
