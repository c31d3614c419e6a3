"""LUMINA's statistical validation as a test-suite for any token signal, with clustered inference and a placebo.

A hypothesis that holds is a necessary sign and no proof: tasks differ in format, length and style too. The placebo
repeats the comparison with another random document in place of the passages, so that only what the passages
themselves do is missing; :attr:`Tested.excess` is what is left of the difference then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from groundscope.data.contrast import draw_contrasts
from groundscope.errors import GroundscopeError, InputError, check_choice, check_count
from groundscope.evaluate.hypotheses.inference import Compared, TokenComparison, TokenValues, compare, excess
from groundscope.evaluate.hypotheses.predictions import Answers, Condition, Group, Hypothesis, of_role
from groundscope.evaluate.hypotheses.quantity import Quantity
from groundscope.evaluate.metrics.binary import Floats
from groundscope.evaluate.metrics.bootstrap import LEAST_SOURCES, Estimate, Resampler
from groundscope.evaluate.protocol.conditions import ConditionReader, Passages
from groundscope.evaluate.protocol.splits import example_sources
from groundscope.example import Example
from groundscope.lm.language_model import LanguageModel
from groundscope.lm.prompt.template import PromptTemplate
from groundscope.reading import nothing_to_read
from groundscope.trace.signals import sources_of
from groundscope.trace.trace import Trace

Cluster = Literal["source", "response"]
Progress = Callable[[Iterable[Example], int], Iterable[Example]]
# Below this, intervals by source are known to be too narrow.
FEW_SOURCES = 20


@dataclass(frozen=True)
class Tested:
    """One hypothesis put to the data.

    Attributes:
        name: ``H1`` to ``H4``.
        claim: In words.
        reason: Why it could not be tested; ``None`` if it could.
        real: The comparison as claimed; ``None`` if it could not be made.
        placebo: The same with a random document in place of the passages.
        excess: Difference of the real comparison minus that of the placebo, with its interval by source.
        notes: What to know about the figures.
    """

    name: str
    claim: str
    reason: str | None = None
    real: TokenComparison | None = None
    placebo: TokenComparison | None = None
    excess: Estimate | None = None
    notes: tuple[str, ...] = ()

    def outcome(self, alpha: float = 0.05) -> str:
        """Return ``yes``, ``no``, ``as in placebo`` where the random document does the same, or why neither.

        Without a comparison it is ``not testable``, with fewer than 5 sources on a side ``too few sources``.
        """
        if self.real is None:
            return "not testable"
        if min(self.real.first.sources, self.real.second.sources) < LEAST_SOURCES:
            return "too few sources"
        test = self.real.clustered
        if test is None or test.p is None or test.p >= alpha:
            return "no"
        left = None if self.excess is None else self.excess.low
        return "yes" if left is not None and left > 0 else "as in placebo"


@dataclass(frozen=True)
class Validation:
    """What the tests of one signal found.

    Attributes:
        quantity: What was tested, as given.
        role: ``external`` or ``internal``.
        model: The model that read.
        data: Examples, sources and tasks that were read.
        settings: How it was done.
        tested: The hypotheses.
        unread: How many readings failed, by reason.
    """

    quantity: str
    role: str
    model: str
    data: dict[str, Any]
    settings: dict[str, Any]
    tested: tuple[Tested, ...]
    unread: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, the outcome of each hypothesis included."""
        alpha = 1 - self.settings["confidence"]
        record = asdict(self)
        record["tested"] = [{**asdict(item), "outcome": item.outcome(alpha)} for item in self.tested]
        return record


@dataclass(frozen=True)
class ValidationOptions:
    """How a validation is done.

    Attributes:
        template: The prompt around question and passages.
        generate: Whether to let the reading model answer without passages, which H1 needs.
        max_new_tokens: Bound of these answers.
        documents: Random documents that contrast signals compare with.
        match_length: Whether random documents are drawn among those about as long as the passages.
        cluster: What counts as independent: ``source`` or ``response``.
        resamples: Draws of the bootstrap.
        confidence: Of the intervals.
        batch_size: Sequences read at once.
        seed: Of random documents and resamples.

    Raises:
        InputError: If a value is out of range.
    """

    template: PromptTemplate = field(default_factory=PromptTemplate)
    generate: bool = False
    max_new_tokens: int = 128
    documents: int = 1
    match_length: bool = True
    cluster: Cluster = "source"
    resamples: int = 1000
    confidence: float = 0.95
    batch_size: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "documents", "resamples", "batch_size"):
            check_count("validate", name, getattr(self, name))
        check_choice("validate", "cluster", self.cluster, ("source", "response"))


_Key = tuple[Answers, Condition]


def validate(
    lm: LanguageModel,
    examples: Sequence[Example],
    quantity: Quantity | str,
    options: ValidationOptions | None = None,
    *,
    progress: Progress | None = None,
) -> Validation:
    """Test what LUMINA's authors tested, on any signal and data.

    Args:
        lm: The model that reads.
        examples: Responses with passages; labels are not read. Their passages stand in as random documents.
        quantity: What is tested; see :meth:`Quantity.parse` for names.
        options: How.
        progress: Wraps the examples, told their number, to show how far the reading is.

    Returns:
        Every hypothesis about signals of the quantity's role: tested, or why not.

    Raises:
        InputError: If no example has passages and a response to read, or the model has no such layer or head.
    """
    options = options or ValidationOptions()
    tested = Quantity.parse(quantity) if isinstance(quantity, str) else quantity
    tested.check_model(lm)
    usable = [example for example in examples if nothing_to_read(example) is None]
    if not usable:
        raise InputError(f"Nothing can be validated: none of {len(examples)} examples has passages and a response.")
    resampler = Resampler(
        example_sources(usable) if options.cluster == "source" else [str(i) for i in range(len(usable))],
        options.resamples,
        options.confidence,
        options.seed,
    )
    barred = {item.name: _barrier(item, tested, usable, options) for item in of_role(tested.role)}
    open_ones = [item for item in of_role(tested.role) if barred[item.name] is None]
    reading = _Reading(lm, tested, usable, options)
    reading.run({group for item in open_ones for group in (*item.groups, *item.placebo)}, progress)
    results = [
        Tested(item.name, item.claim, reason)
        if (reason := barred[item.name]) is not None
        else _test(item, reading, resampler, options.cluster)
        for item in of_role(tested.role)
    ]
    tasks, counts = np.unique([example.task or "(unknown)" for example in usable], return_counts=True)
    settings = {key: value for key, value in asdict(options).items() if key != "template"}
    return Validation(
        tested.name,
        tested.role,
        lm.name,
        {
            "examples": len(usable),
            "left_out": len(examples) - len(usable),
            "sources": len(resampler.names),
            "tasks": dict(zip(tasks.tolist(), counts.tolist(), strict=True)),
        },
        {**settings, "template": options.template.fingerprint()},
        tuple(results),
        dict(reading.unread),
    )


class _Reading:
    """Values of every example under every condition that some hypothesis needs."""

    def __init__(
        self, lm: LanguageModel, quantity: Quantity, examples: Sequence[Example], options: ValidationOptions
    ) -> None:
        self.quantity = quantity
        self.examples = examples
        self.options = options
        detectors = () if quantity.detector is None else (quantity.detector,)
        self.reader = ConditionReader(lm, quantity.signals, options.template, options.batch_size, detectors)
        self.compares = "contrast" in sources_of(quantity.signals)
        self.values: dict[_Key, dict[int, Floats]] = {}
        self.unread: dict[str, int] = {}

    def run(self, groups: set[Group], progress: Progress | None) -> None:
        wanted = {
            i: sorted({(g.answers, g.condition) for g in groups if g.task in (None, example.task)})
            for i, example in enumerate(self.examples)
        }
        todo = [(i, self.examples[i]) for i, keys in wanted.items() if keys]
        shown = progress([example for _, example in todo], len(todo)) if progress else [item for _, item in todo]
        block: list[int] = []
        for (index, _), _ in zip(todo, shown, strict=True):
            block.append(index)
            if len(block) == self.options.batch_size:
                self._read(block, wanted)
                block = []
        self._read(block, wanted)

    def _read(self, block: Sequence[int], wanted: dict[int, list[_Key]]) -> None:
        rows: list[tuple[int, _Key, Example, Passages, Sequence[Passages]]] = []
        for index in block:
            example = self.examples[index]
            try:
                drawn = [
                    item.passages
                    for item in draw_contrasts(
                        example,
                        self.examples,
                        self.options.seed,
                        self.options.documents + 1,
                        match_length=self.options.match_length,
                    )
                ]
            except GroundscopeError as exc:
                self._failed(exc)
                continue
            shown: dict[Condition, Passages] = {"documents": example.passages, "placebo": drawn[-1], "none": ()}
            answer: Example | None = None
            for key in wanted[index]:
                answers, condition = key
                if answers == "generated" and answer is None:
                    answer = self._answered(example)
                read = example if answers == "given" else answer
                if read is not None and nothing_to_read(read) is None:
                    rows.append((index, key, read, shown[condition], drawn[:-1] if self.compares else ()))
        results = self.reader.read([row[2] for row in rows], [row[3] for row in rows], [row[4] for row in rows])
        for (index, key, *_), trace in zip(rows, results, strict=True):
            if isinstance(trace, Trace):
                self.values.setdefault(key, {})[index] = self.quantity.values(trace)
            else:
                self._failed(trace)

    def _answered(self, example: Example) -> Example | None:
        try:
            return self.reader.answer_without_passages(example, self.options.max_new_tokens)
        except GroundscopeError as exc:
            self._failed(exc)
            return None

    def _failed(self, error: GroundscopeError) -> None:
        reason = type(error).__name__ + ": " + str(error).partition(".")[0]
        self.unread[reason] = self.unread.get(reason, 0) + 1

    def of(self, group: Group) -> dict[int, Floats]:
        """Return (token,) values by position of the example."""
        found = self.values.get((group.answers, group.condition), {})
        return {i: values for i, values in found.items() if group.task in (None, self.examples[i].task)}


def _barrier(
    hypothesis: Hypothesis, quantity: Quantity, examples: Sequence[Example], options: ValidationOptions
) -> str | None:
    """Return why a hypothesis cannot be tested, before anything is read."""
    present = {example.task for example in examples}
    missing = [task for task in hypothesis.tasks if task not in present]
    if missing:
        found = ", ".join(sorted(task for task in present if task)) or "none"
        return f"the data hold no examples of the task {' or '.join(map(repr, missing))} (tasks found: {found})"
    if any(group.condition == "none" for group in hypothesis.groups) and quantity.needs_passages:
        return f"{quantity.name} is zero by definition where the prompt holds no passage"
    if any(group.answers == "generated" for group in hypothesis.groups):
        if not options.generate:
            return "answers made without documents were not asked for (--generate, or generate=True)"
        if not any(example.question.strip() for example in examples if example.task in hypothesis.tasks):
            return "no example has a question that could be answered without documents"
    return None


def _test(hypothesis: Hypothesis, reading: _Reading, resampler: Resampler, cluster: Cluster) -> Tested:
    sides = [reading.of(group) for group in hypothesis.groups]
    shams = [reading.of(group) for group in hypothesis.placebo]
    if hypothesis.paired:
        both = set(sides[0]) & set(sides[1]) & set(shams[0]) & set(shams[1])
        sides, shams = ([{i: v[i] for i in sorted(both)} for v in pair] for pair in (sides, shams))
    if not all(sides) or not all(shams):
        failed = ", ".join(f"{count} x {reason}" for reason, count in reading.unread.items()) or "no response to read"
        return Tested(hypothesis.name, hypothesis.claim, f"one side could not be read ({failed})")
    real, sham = (_compared(pair, resampler, hypothesis.paired) for pair in (sides, shams))
    notes = []
    least = min(real.result.first.sources, real.result.second.sources)
    if least < FEW_SOURCES:
        what = "intervals by {0} are too narrow" if least >= LEAST_SOURCES else "their spread tells nothing"
        notes.append(f"only {least} {cluster}s on a side: {what.format(cluster)}")
    return Tested(
        hypothesis.name, hypothesis.claim, None, real.result, sham.result, excess(real, sham, resampler), tuple(notes)
    )


def _compared(pair: Sequence[dict[int, Floats]], resampler: Resampler, paired: bool) -> Compared:
    first, second = (
        TokenValues(
            np.concatenate(list(side.values())),
            np.concatenate([np.full(len(values), resampler.codes[index]) for index, values in side.items()]),
            len(side),
        )
        for side in pair
    )
    return compare(first, second, resampler, paired=paired)
