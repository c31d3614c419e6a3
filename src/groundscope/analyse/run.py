"""One analysis from a file of records or a trace store: differences, interventions, robustness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from groundscope.analyse.choice import (
    CONTEXT,
    KNOWLEDGE,
    check_given,
    check_places,
    choose_heads,
    choose_layers,
    needs_traces,
)
from groundscope.analyse.differences import Place, SignalDifferences, signal_differences
from groundscope.analyse.intervention import (
    Intervention,
    InterventionOptions,
    intervene_on_heads,
    intervene_on_layers,
)
from groundscope.analyse.robustness import Robustness, RobustnessOptions, check_curves, robustness
from groundscope.data.jsonl import BadRecord
from groundscope.detectors.base import Detector
from groundscope.errors import InputError, MismatchError
from groundscope.example import Example
from groundscope.reading import Reader, Unread, nothing_to_read
from groundscope.trace.storage.store import TraceStore, is_store
from groundscope.trace.traced import TracedExample
from groundscope.train.data import OTHERS, Progress, ReadingOptions, labelled, records

_STORE_LACKS = "differences of {0} need a trace store that holds it; extract again with --signal {0}"


@dataclass(frozen=True)
class Plan:
    """What is asked.

    Attributes:
        differences: Whether to compare faithful and hallucinated responses head by head and layer by layer.
        copying: Whether to relate heads to what their weights say about copying, which takes a minute or more.
        heads: Heads to let attend at random, see :func:`choose_heads`; ``None`` for none.
        layers: Layers to make louder, see :func:`choose_layers`; ``None`` for none.
        factor: How much louder.
        axes: What to vary, see :data:`groundscope.analyse.robustness.AXES`.
        detector: Whose curves to draw.
        task: Only examples of this task.
        limit: Only the first so many records.
        intervention: How interventions are done.
    """

    differences: bool = True
    copying: bool = False
    heads: str | None = None
    layers: str | None = None
    factor: float = 10.0
    axes: tuple[str, ...] = ()
    detector: Detector | None = None
    task: str | None = None
    limit: int | None = None
    intervention: InterventionOptions = field(default_factory=InterventionOptions)

    @property
    def more(self) -> bool:
        """Whether anything but differences is asked."""
        return bool(self.heads or self.layers or self.axes)


@dataclass(frozen=True)
class Analysis:
    """What was found.

    Attributes:
        data: What was read, what was left out since it claims nothing or has no passages, and what failed.
        differences: One per signal.
        interventions: With how their places were chosen.
        robustness: Curves; ``None`` if none were asked for.
        notes: What to know.
    """

    data: dict[str, Any]
    differences: tuple[SignalDifferences, ...] = ()
    interventions: tuple[tuple[str, Intervention], ...] = ()
    robustness: Robustness | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "data": self.data,
            "differences": [item.to_dict() for item in self.differences],
            "interventions": [{"chosen_by": how, **item.to_dict()} for how, item in self.interventions],
            "robustness": None if self.robustness is None else self.robustness.to_dict(),
            "notes": list(self.notes),
        }


def analyse(
    source: str | Path, plan: Plan, options: ReadingOptions | None = None, *, progress: Progress | None = None
) -> Analysis:
    """Carry out a plan.

    Args:
        source: A JSON Lines file or a trace store, with labels.
        plan: What is asked.
        options: The model that reads; of a store, by default the one that made it.
        progress: Wraps examples to show how far a reading is.

    Raises:
        InputError: If nothing is asked, or the data cannot answer it.
        MismatchError: If the model is not the one that made the store.
    """
    if not (plan.differences or plan.more):
        raise InputError("Nothing is asked: differences are off, and there is no intervention and no robustness axis.")
    if plan.axes and plan.detector is None:
        raise InputError("A robustness curve needs a detector.")
    check_given(plan.heads, plan.layers)
    return _Run(Path(source), plan, options or ReadingOptions(), progress).execute()


class _Run:
    def __init__(self, source: Path, plan: Plan, options: ReadingOptions, progress: Progress | None) -> None:
        self.plan, self.progress = plan, progress
        self.store = TraceStore(source) if is_store(source) else None
        self.options = options
        self.bad: list[BadRecord] = []
        self.unread: list[Unread] = []
        self.notes: list[str] = []
        self.left_out = 0
        if self.store is not None:
            made_by = self.store.fingerprint["model"]
            self.options = replace(options, model=options.model or made_by)
            held = [name for name in (CONTEXT, KNOWLEDGE) if name in self.store.signals]
            if not held and not plan.more:
                lacking = "; ".join(_STORE_LACKS.format(name) for name in (CONTEXT, KNOWLEDGE))
                raise InputError(f"{str(source)!r} cannot answer what is asked: {lacking}.")
            self.traced = self._of_task(self.store.read(held, plan.limit))
            self.examples = [item.example for item in self.traced]
            self.signals = held
            self.unread = [
                Unread(item["outcome"], item["message"], item.get("id"))
                for item in self.store.unread_within(plan.limit)
                if item["outcome"] in ("too_long", "failed")
            ]
        else:
            self.traced = []
            found = [e for e in labelled(records(source, self.bad, plan.limit)) if self._wanted(e)]
            self.examples = [example for example in found if nothing_to_read(example) is None]
            self.left_out = len(found) - len(self.examples)
            self.signals = [CONTEXT, KNOWLEDGE]
        if not self.examples:
            task = "" if plan.task is None else f" of the task {plan.task!r}"
            raise InputError(f"{str(source)!r} holds no labelled examples{task} with passages and an answer.")

    def execute(self) -> Analysis:
        plan = self.plan
        if plan.heads or plan.layers:
            check_places(plan.heads, plan.layers, self.examples, self.reader.lm, plan.intervention)
        if plan.axes and plan.detector is not None:
            check_curves(self.reader.lm, self.examples, plan.detector, plan.axes, self.reader.template)
        if plan.differences or needs_traces(plan.heads) or needs_traces(plan.layers):
            self._read()
        copying = self._copying() if plan.copying or (plan.heads or "").startswith("copying:") else {}
        differences = []
        for name in (CONTEXT, KNOWLEDGE) if plan.differences else ():
            if name in self.signals:
                given = copying if copying and name == CONTEXT else None
                how = plan.intervention
                differences.append(
                    signal_differences(
                        self.traced,
                        name,
                        copying=given,
                        resamples=how.resamples,
                        confidence=how.confidence,
                        seed=how.seed,
                    )
                )
            else:
                self.notes.append(_STORE_LACKS.format(name))
        interventions = self._interventions(copying)
        return Analysis(self._data(), tuple(differences), tuple(interventions), self._robustness(), tuple(self.notes))

    @cached_property
    def reader(self) -> Reader:
        reader = self.options.reader((), self.signals if self.store is None else ())
        if self.store is not None and dict(self.store.fingerprint) != reader.fingerprint:
            raise MismatchError(
                f"The traces were made by {self.store.fingerprint['model']!r} or under another template than those "
                f"given now ({reader.lm.name!r}). Use the model and template of the store."
            )
        return reader

    def _read(self) -> None:
        if self.store is not None:
            return
        shown = self.progress(self.examples, len(self.examples)) if self.progress else self.examples
        for result in self.reader.read_many(shown, self.examples[:OTHERS]):
            if isinstance(result, TracedExample):
                self.traced.append(result)
            else:
                self.unread.append(result)

    def _copying(self) -> dict[Place, float]:
        from groundscope.learn.copying import copying_scores

        found = copying_scores(self.reader.lm, seed=self.plan.intervention.seed)
        # Low ranks copy most: turned round, so that more is more.
        return {
            (layer, head): -float(found.ranks[row, head])
            for row, layer in enumerate(found.layers)
            for head in range(found.ranks.shape[1])
        }

    def _interventions(self, copying: dict[Place, float]) -> list[tuple[str, Intervention]]:
        plan, done = self.plan, []
        how = replace(plan.intervention, template=self.reader.template) if plan.heads or plan.layers else None
        if plan.heads and how:
            chosen = choose_heads(plan.heads, self.examples, self.traced, copying, how.seed)
            heads = [(place[0], place[1]) for place in chosen.places]
            found = intervene_on_heads(self.reader.lm, chosen.examples, heads, how, progress=self.progress)
            done.append((chosen.how, found))
        if plan.layers and how:
            chosen = choose_layers(plan.layers, self.examples, self.traced, how.seed)
            layers = [place[0] for place in chosen.places]
            found = intervene_on_layers(
                self.reader.lm, chosen.examples, layers, plan.factor, how, progress=self.progress
            )
            done.append((chosen.how, found))
        return done

    def _robustness(self) -> Robustness | None:
        plan = self.plan
        if not plan.axes or plan.detector is None:
            return None
        how = RobustnessOptions(
            self.reader.template,
            self.options.batch_size,
            plan.intervention.resamples,
            plan.intervention.confidence,
            plan.intervention.seed,
        )
        return robustness(self.reader.lm, self.examples, plan.detector, plan.axes, how, progress=self.progress)

    def _data(self) -> dict[str, Any]:
        tasks, counts = np.unique([example.task or "(unknown)" for example in self.examples], return_counts=True)
        if self.plan.differences and len(tasks) > 1:
            self.notes.append(
                "several tasks together: differences may be those between tasks; see each alone with --task"
            )
        return {
            "examples": len(self.examples),
            "read": len(self.traced),
            "tasks": dict(zip(tasks.tolist(), counts.tolist(), strict=True)),
            "left_out": self.left_out,
            "unread": [f"{item.id}: {item.message}" for item in self.unread],
            "bad_lines": [item.line for item in self.bad],
        }

    def _wanted(self, example: Example) -> bool:
        return self.plan.task is None or example.task == self.plan.task

    def _of_task(self, traced: Sequence[TracedExample]) -> list[TracedExample]:
        return [item for item in traced if self._wanted(item.example)]
