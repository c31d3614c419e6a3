"""Detectors that learn from labelled examples; scikit-learn's shape: ``fit``, ``score``, learnt names end in ``_``."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from groundscope.detectors.base import Detector
from groundscope.doors import open_door
from groundscope.errors import InputError, MismatchError, PrerequisiteError
from groundscope.example import Example
from groundscope.learn.labels import ALL_KINDS, check_both_classes, check_kinds, response_label
from groundscope.trace.trace import Trace
from groundscope.trace.traced import Traced, TracedExample, check_one_model, examples_of
from groundscope.verdict import Threshold

if TYPE_CHECKING:
    from typing_extensions import Self

Arrays = dict[str, npt.NDArray[Any]]


class LearnedDetector(Detector):
    """A detector with a probe: it must be fitted, or loaded, before it scores.

    Attributes:
        label_kinds: Kinds of labels that it may learn from.
        fingerprint_: What it was fitted on: model, tokenizer, template; see ``LanguageModel.fingerprint``.
        trained_on_: Digests of the ids and sources that it learnt from or chose on.
        threshold_: Where the lines are drawn, chosen on held-out examples; ``None`` until somebody chose.
    """

    needs_training: ClassVar[bool] = True
    label_kinds: ClassVar[tuple[str, ...]] = ALL_KINDS
    fingerprint_: dict[str, Any]
    trained_on_: list[str]
    threshold_: Threshold | None

    def fit(self, data: Traced, dev: Traced | None = None) -> LearnedDetector:
        """Learn from labelled examples.

        Args:
            data: Traced examples with labels, both classes among them.
            dev: Others, from other sources, on which choices are made; methods that choose nothing ignore it.

        Returns:
            Itself.

        Raises:
            InputError: If labels are missing, too coarse for the method or of one class, the traces are of
                several models, or the same example or source stands in both sets.
        """
        train, held_out = check_traced(self, data), None if dev is None else check_traced(self, dev)
        if held_out is not None:
            check_disjoint(train, held_out)
        self._fit(train, held_out)
        self.fingerprint_ = dict(train[0].trace.fingerprint)
        self.trained_on_ = sorted({mark for item in [*train, *(held_out or ())] for mark in _marks(item)})
        self.threshold_ = None
        return self

    @abstractmethod
    def _fit(self, data: Traced, dev: Traced | None) -> None:
        """Learn; the examples are checked."""

    def check_model(self, layers: int, attention_layers: Sequence[int], heads: int) -> None:
        """Refuse parameters that name more heads or layers than a model has, before it reads anything.

        By default there are none to refuse.

        Args:
            layers: All layers of the model.
            attention_layers: Numbers of those with attention.
            heads: Heads in each of these.

        Raises:
            InputError: If a parameter asks for what the model does not have.
        """

    @abstractmethod
    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return what was learnt: arrays by name, and facts as plain JSON values."""

    @abstractmethod
    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` returned."""

    @property
    def is_fitted(self) -> bool:
        """Whether it has learnt something."""
        return hasattr(self, "fingerprint_")

    def check_fitted(self) -> None:
        """Refuse to score before learning.

        Raises:
            PrerequisiteError: If it was not fitted.
        """
        if not self.is_fitted:
            raise PrerequisiteError(
                f"The detector {self.name!r} must learn before it scores. Train it with 'groundscope train "
                f"{self.name}' or fit(), or load a trained one from its folder."
            )

    def check_reader(self, fingerprint: Mapping[str, Any]) -> None:
        """Refuse to score what another model reads; a copy of the model under another name is the same model.

        Raises:
            MismatchError: If model, tokenizer, template or heads differ from those of the training traces.
        """
        differing = [
            f"{name} was {self.fingerprint_.get(name)!r}, is {value!r}"
            for name, value in fingerprint.items()
            if name != "model" and self.fingerprint_.get(name) != value
        ]
        if differing:
            raise MismatchError(
                f"The detector {self.name!r} learnt from traces of {self.fingerprint_.get('model')!r} and cannot score "
                f"what {fingerprint.get('model')!r} reads ({'; '.join(differing)}). Use the model and template that it "
                "was trained with, train it again, or carry it over with 'groundscope transfer'."
            )

    def check_unseen(self, data: Traced) -> None:
        """Refuse to be measured on what it learnt from or chose on.

        Raises:
            InputError: If an example or its source was among that.
        """
        known = set(self.trained_on_)
        seen = [item for item in data if known.intersection(_marks(item))]
        if seen:
            raise InputError(
                f"The detector {self.name!r} learnt from {len(seen)} of these {len(data)} examples or from others of "
                f"the same source, for instance {seen[0].example.id!r}. Measure it on sources that it has not seen."
            )

    def has_seen(self, example: Example) -> bool:
        """Whether it learnt from, or chose on, an example of this source."""
        return _mark("source", example.group) in self.trained_on_

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write it to a folder; see :func:`groundscope.detectors.saved.folder.save_detector`."""
        written: Path = open_door("LearnedDetector.save_pretrained")(self, folder)
        return written

    @classmethod
    def from_pretrained(cls, source: str | Path) -> Self:
        """Load it from a folder or hub repository; see :func:`groundscope.detectors.saved.folder.load_detector`.

        Raises:
            InputError: If what is there is of another method.
        """
        detector: LearnedDetector = open_door("LearnedDetector.from_pretrained")(source)
        if not isinstance(detector, cls):
            raise InputError(f"{str(source)!r} holds a {type(detector).__name__}, no {cls.__name__}.")
        return detector

    def push_to_hub(self, repository: str, *, private: bool = False) -> str:
        """Upload it; see :func:`groundscope.detectors.saved.folder.push_detector`."""
        address: str = open_door("LearnedDetector.push_to_hub")(self, repository, private=private)
        return address

    def score(self, data: Traced) -> float:
        """Return the AUROC of response scores on labelled examples, in [0, 1].

        Raises:
            InputError: If they are of one class.
        """
        from sklearn.metrics import roc_auc_score

        labels = np.array([response_label(item.example) for item in data])
        check_both_classes(self.name, labels, "response")
        return float(roc_auc_score(labels, [self.response_score_of(item.trace) for item in data]))

    def response_score_of(self, trace: Trace) -> float:
        """Return the score of one response."""
        return self.response_score(self.token_scores(trace))


def _marks(item: TracedExample) -> tuple[str, ...]:
    keys = [_mark("source", item.group)]
    return (*keys, _mark("id", item.example.id)) if item.example.id is not None else tuple(keys)


def _mark(kind: str, name: str) -> str:
    return hashlib.sha256(f"{kind} {name}".encode()).hexdigest()[:12]


def check_traced(detector: LearnedDetector, data: Traced) -> Sequence[TracedExample]:
    """Return examples as a list, refusing what a detector cannot learn from.

    Raises:
        InputError: See :meth:`LearnedDetector.fit`.
    """
    items = list(data)
    for item in items:
        if not isinstance(item, TracedExample):
            raise InputError(
                f"{detector.name} learns from traced examples. Got {type(item).__name__} instead; "
                "groundscope.trace.extract makes them from examples."
            )
    check_examples(detector, examples_of(items))
    check_one_model(items)
    return items


def check_examples(detector: LearnedDetector, data: Sequence[Example]) -> None:
    """Refuse examples that a detector cannot learn from, whatever a model reads of them.

    Raises:
        InputError: If there are none, or their labels are missing, too coarse for the method or of one class.
    """
    if not data:
        raise InputError(f"{detector.name} needs examples to learn from. Got none.")
    check_kinds(detector.name, data, detector.label_kinds)
    check_both_classes(detector.name, np.array([response_label(example) for example in data]), "response")
    if "response" not in detector.label_kinds and not any(example.labels for example in data):
        raise InputError(
            f"{detector.name} learns from the stretches that are marked in responses. Got {len(data)} examples and no "
            "marked stretch in any; mark them, or use a method or unit that learns from whole responses."
        )


def check_distinct(data: Sequence[Example]) -> None:
    """Refuse examples that were given more than once, as a file or a trace store named twice does.

    Raises:
        InputError: If an identifier comes again with the same passages and response.
    """
    seen: set[tuple[object, ...]] = set()
    again = []
    for example in data:
        key = (example.id, example.question, example.passages, example.response)
        if example.id is not None and key in seen:
            again.append(example.id)
        seen.add(key)
    if again:
        raise InputError(
            f"Each example must be given once. Got {len(again)} of them again, for instance {again[0]!r}; name every "
            "file or trace store once, and leave out what is in another one."
        )


def check_disjoint(train: Traced | Sequence[Example], held_out: Traced | Sequence[Example]) -> None:
    """Refuse two sets that share an example or a source.

    Raises:
        InputError: If they do.
    """
    sets = examples_of(train), examples_of(held_out)
    for what, (one, other) in (
        ("an id", [[example.id for example in part] for part in sets]),
        ("a source", [[example.group for example in part] for part in sets]),
    ):
        both = set(one) & set(other) - {None}
        if both:
            raise InputError(
                f"Examples to learn from and examples to choose or measure on must not share {what}. "
                f"Got {len(both)} in both, for instance {min(map(str, both))!r}; split by source."
            )
