"""Scores of answers that a detector did not learn from, and the lines that keep a promise on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from groundscope.errors import InputError
from groundscope.learn.goal import Goal
from groundscope.learn.promise import precision_line
from groundscope.verdict_parts import Threshold

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.bool_]
_ARRAYS = ("response", "span", "sentence", "answer")
_OPTIONAL = ("response_probability", "sentence_probability")


@dataclass(frozen=True, eq=False)
class Lines:
    """Where the lines are drawn.

    Attributes:
        response: For response scores.
        span: For stretches.
        sentence: For sentence scores; ``None`` without a sentence model.
        unmet: Those of ``sentence`` and ``span`` for which no line could be shown to keep the goal: it lies above
            all scores that were seen.
    """

    response: float
    span: float
    sentence: float | None
    unmet: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class CalibrationScores:
    """Scores of held-out answers, in the units that a threshold is compared with.

    Those that come with a detector (``calibration_``) are of faithful answers only.

    Attributes:
        response: (answer,) response scores.
        span: (answer,) the highest stretch of each answer: its smoothed span score (``TokenScore.level``).
        sentence: (sentence,) sentence scores; empty if the detector has no sentence model.
        answer: (sentence,) the answer, counted from 0, that each sentence stands in.
        response_probability: (answer,) calibrated probabilities, if there are any.
        sentence_probability: (sentence,) likewise.

    Raises:
        InputError: If shapes disagree, a number is not finite, or an answer has no sentence though others have.
    """

    response: Floats
    span: Floats
    sentence: Floats
    answer: npt.NDArray[np.int64]
    response_probability: Floats | None = None
    sentence_probability: Floats | None = None

    def __post_init__(self) -> None:
        try:
            for name in (*_ARRAYS, *_OPTIONAL):
                given = getattr(self, name)
                if given is not None or name in _ARRAYS:
                    kind = np.int64 if name == "answer" else np.float64
                    object.__setattr__(self, name, np.asarray(given, dtype=kind))
        except (TypeError, ValueError, OverflowError) as exc:
            raise InputError(f"Calibration scores must be arrays of numbers: {exc}.") from exc
        answers, sentences = self.response.shape, self.sentence.shape
        wanted = {"span": answers, "answer": sentences, "response_probability": answers}
        wanted["sentence_probability"] = sentences
        whole = len(answers) == len(sentences) == 1 and all(
            getattr(self, name) is None or getattr(self, name).shape == shape for name, shape in wanted.items()
        )
        if not whole:
            raise InputError(
                "Calibration scores need one span score per response score, and one answer per sentence score. "
                f"Got the shapes {answers}, {self.span.shape}, {sentences} and {self.answer.shape} instead."
            )
        if not all(np.isfinite(getattr(self, name)).all() for name in _ARRAYS):
            raise InputError("Calibration scores must be finite. Got NaN or infinity.")
        for name in _OPTIONAL:
            given = getattr(self, name)
            if given is not None and not ((given >= 0) & (given <= 1)).all():
                raise InputError("The probabilities beside calibration scores must lie in [0, 1]. Got others.")
        if len(self.sentence) and not np.array_equal(np.unique(self.answer), np.arange(len(self))):
            raise InputError("Every answer must have a sentence score, or none. Got some without, or of no answer.")

    def __len__(self) -> int:
        return len(self.response)

    @property
    def highest_sentences(self) -> Floats:
        """(answer,) the highest sentence score of each; needs sentences."""
        highest = np.full(len(self), -np.inf)
        np.maximum.at(highest, self.answer, self.sentence)
        return highest

    def drawn_sentences(self, seed: int = 0) -> npt.NDArray[np.int64]:
        """(answer,) the place of one sentence of each answer.

        Sentences of one answer are not independent; one drawn from each answer are, if the answers are.
        """
        rng = np.random.default_rng(seed)
        return np.array([rng.choice(np.flatnonzero(self.answer == i)) for i in range(len(self))], dtype=np.int64)

    def chosen(self, which: npt.NDArray[np.bool_]) -> CalibrationScores:
        """Return the scores of some answers, (answer,) true or false."""
        inside = which[self.answer] if len(self.answer) else np.zeros(0, dtype=np.bool_)
        chances = self.response_probability, self.sentence_probability
        return CalibrationScores(
            self.response[which],
            self.span[which],
            self.sentence[inside],
            (np.cumsum(which) - 1)[self.answer[inside]],
            None if chances[0] is None else chances[0][which],
            None if chances[1] is None else chances[1][inside],
        )

    def lines(self, goal: Goal, seed: int = 0) -> Lines:
        """Return the lowest lines that keep a promise about false alarms, all answers taken as faithful.

        Each line keeps the promise for itself: at most the promised share of faithful answers is flagged; at most
        that share holds a sentence above its line; at most that share holds a stretch above its line.

        Answers that are not faithful may be among them: as long as these score higher than faithful ones, they only
        push the lines up, so the promise is kept and fewer are found.

        Args:
            goal: The promise; per sentence, one sentence is drawn from each answer.
            seed: Of that draw.

        Raises:
            InputError: If there are too few answers (the message says how many are needed), or sentences are to be
                promised and there are none.
        """
        promise = goal.promise
        response = promise.line(self.response)
        sentence = None
        if goal.unit == "sentence":
            self._check_sentences()
            sentence = promise.line(self.sentence[self.drawn_sentences(seed)], unit="answers with sentences")
        elif len(self.sentence):
            sentence = promise.line(self.highest_sentences)
        return Lines(response, promise.line(self.span), sentence)

    def precise_lines(
        self, labels: npt.ArrayLike, goal: Goal, sentence_labels: npt.ArrayLike | None = None, seed: int = 0
    ) -> Lines:
        """Return the lowest lines at which flags are right at the wanted rate.

        An answer counts as flagged by the line for sentences, or for spans, if it holds one above it.

        Args:
            labels: (answer,) whether hallucinated.
            goal: The precision.
            sentence_labels: (sentence,) whether hallucinated, NaN where nobody knows; for ``unit="sentence"``.
            seed: Of the draw of one sentence from each answer, for ``unit="sentence"``.

        Raises:
            InputError: If no line for responses can be shown to reach it.
        """
        truth = np.asarray(labels, dtype=bool)
        precision = float(goal.precision or 0)
        response = precision_line(truth, self.response, precision, goal.confidence)
        units: dict[str, tuple[Labels, Floats]] = {"span": (truth, self.span)}
        if goal.unit == "sentence":
            self._check_sentences()
            known = np.asarray(sentence_labels, dtype=np.float64)
            drawn = self.drawn_sentences(seed)
            drawn = drawn[~np.isnan(known[drawn])]
            units["sentence"] = known[drawn] > 0, self.sentence[drawn]
        elif len(self.sentence):
            units["sentence"] = truth, self.highest_sentences
        found: dict[str, float] = {}
        unmet = []
        for name, (right, scores) in units.items():
            try:
                found[name] = precision_line(right, scores, precision, goal.confidence)
            except InputError:
                unmet.append(name)
                found[name] = float(np.nextafter((self.span if name == "span" else self.sentence).max(), np.inf))
        return Lines(response, found["span"], found.get("sentence"), tuple(sorted(unmet)))

    def threshold(self, lines: Lines, source: str) -> Threshold:
        """Return lines as a threshold, with the probabilities that scores at them have.

        Args:
            lines: The lines.
            source: Where they come from, in words.
        """
        return Threshold(
            lines.response,
            lines.span,
            source,
            sentence=lines.sentence,
            response_probability=_at(lines.response, self.response, self.response_probability),
            sentence_probability=_at(lines.sentence, self.sentence, self.sentence_probability),
        )

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays by name, for saving."""
        names = [*_ARRAYS, *(name for name in _OPTIONAL if getattr(self, name) is not None)]
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_state(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> CalibrationScores:
        """Take over what :meth:`state` returned.

        Raises:
            InputError: If an array is missing, or they do not fit each other.
        """
        missing = [name for name in _ARRAYS if name not in arrays]
        if missing:
            raise InputError(f"Calibration scores consist of {', '.join(_ARRAYS)}. {missing[0]!r} is missing.")
        return cls(**{name: arrays[name] for name in (*_ARRAYS, *_OPTIONAL) if name in arrays})

    def _check_sentences(self) -> None:
        if not len(self.sentence):
            raise InputError(
                "A promise per sentence needs a detector that judges sentences. Got scores of whole answers and "
                "stretches only; use the unit 'response'."
            )


def promised(scores: CalibrationScores, goal: Goal, owner: str) -> Threshold:
    """Return the threshold that keeps a promise on the faithful answers that come with a detector.

    Raises:
        InputError: If there are too few of them.
    """
    source = f"{len(scores)} faithful answers that {owner} was not fitted on: {goal}"
    return scores.threshold(scores.lines(goal), source)


def _at(line: float | None, scores: Floats, probabilities: Floats | None) -> float | None:
    if line is None or probabilities is None or not len(scores):
        return None
    order = np.argsort(scores, kind="stable")
    return float(np.interp(line, scores[order], probabilities[order]))
