"""Entailment: a classifier of sentence pairs says whether the passages support each sentence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from groundscope.detectors.untrained.gathered import GatheredDetector, per_token
from groundscope.errors import InputError, PrerequisiteError, check_count
from groundscope.text.sentences import split_sentences

if TYPE_CHECKING:
    from groundscope.example import Example
    from groundscope.lm.companions.pairs import PairClassifier
    from groundscope.lm.language_model import LanguageModel
    from groundscope.lm.prompt.layout import Layout
    from groundscope.trace.trace import FloatArray


class Nli(GatheredDetector):
    """1 - the highest p(entailment) of a sentence by any passage, for each token of the sentence.

    Passages longer than the classifier can read are cut into overlapping parts; evidence in one part of one passage
    is enough, and what only several passages say together is not found. A sentence of more than half that length is
    itself cut, and scores as its least supported part.

    Three-class models (entailment, neutral, contradiction) and two-class models (entailment, not_entailment) are
    read alike, by the softmax over their classes; a model with a single output by its sigmoid.

    Args:
        model: A hub id or folder with a sequence-classification model; what is on this machine is not looked for
            on the hub again.
        label: Name of the class that means support, in any case, or its number.
        device: Where the classifier runs; by default where the reading model is.
        batch_size: Pairs in one pass.

    Raises:
        InputError: If a parameter is of the wrong type.

    Attributes:
        classifier_: The loaded classifier, from the first use on; it is not copied, pickled or saved.
        refusal_: Why it could not be loaded, if it could not: it is not asked for again, nor is this copied or saved.
    """

    name = "nli"
    summary = "no passage entails the sentence, says a classifier of sentence pairs"
    reference = "SelfCheckGPT with NLI, arXiv 2303.08896, section 5.4; SummaC, arXiv 2111.09525"
    neutral = 0.5
    window: ClassVar[int] = 1
    costs_more: ClassVar[bool] = True
    classifier_: PairClassifier
    refusal_: str

    def __init__(
        self,
        model: str = "FacebookAI/roberta-large-mnli",
        label: str | int = "entailment",
        device: str | None = None,
        batch_size: int = 16,
    ) -> None:
        if not isinstance(model, (str, Path)) or not str(model):
            raise InputError(f"The 'model' parameter of Nli must be a hub id or a folder. Got {model!r} instead.")
        if isinstance(label, bool) or not isinstance(label, (str, int)):
            raise InputError(f"The 'label' parameter of Nli must be a class's name or number. Got {label!r} instead.")
        if device is not None and not isinstance(device, str):
            raise InputError(f"The 'device' parameter of Nli must be a string or None. Got {device!r} instead.")
        check_count("Nli", "batch_size", batch_size)
        self.model = model
        self.label = label
        self.device = device
        self.batch_size = batch_size

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("classifier_", "refusal_")}

    @property
    def own_signal(self) -> str:
        """Name of the array that it gathers."""
        return f"nli_{self.label}_{self.model}"

    def gather(self, lm: LanguageModel, example: Example, layout: Layout) -> Mapping[str, FloatArray]:
        """Hold every sentence against every passage.

        Raises:
            PrerequisiteError: If the classifier cannot be had, is incomplete, or has no class of that name.
        """
        from groundscope.lm.companions.pairs import PairClassifier

        if hasattr(self, "refusal_"):
            raise PrerequisiteError(self.refusal_)
        if not hasattr(self, "classifier_"):
            try:
                self.classifier_ = PairClassifier.load(str(self.model), self.label, self.device or str(lm.device))
            except (PrerequisiteError, InputError) as exc:
                # It is the same for every example, and asking the hub again takes most of a minute.
                self.refusal_ = str(exc)
                raise PrerequisiteError(self.refusal_) from exc
        sentences = split_sentences(example.response)
        texts = [example.response[start:end] for start, end in sentences]
        support = self.classifier_.support(texts, example.passages, self.batch_size)
        values = _filled(per_token(layout, sentences, [1 - value for value in support]))
        return {self.own_signal: values.astype(np.float32)}


def _filled(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Give tokens between two sentences the score of the one before, and leading ones that of the first."""
    known = np.flatnonzero(~np.isnan(values))
    if not len(known):
        return np.zeros_like(values)  # nothing is said
    before = np.maximum(np.searchsorted(known, np.arange(len(values)), side="right") - 1, 0)
    filled: npt.NDArray[np.float64] = values[known[before]]
    return filled
