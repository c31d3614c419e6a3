"""From answers of one's own to a profile: the lines that keep a promise on them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from groundscope.detectors.base import Detector
from groundscope.detectors.learnable import LearnedDetector
from groundscope.errors import InputError, MismatchError
from groundscope.example import Example
from groundscope.learn.calibration_scores import CalibrationScores, Lines
from groundscope.learn.goal import Goal
from groundscope.learn.labels import FINE_KINDS, kind_of, response_label
from groundscope.learn.promise import precision_line
from groundscope.train.data import OTHERS, PreparedData, Progress, ReadingOptions, prepare_data
from groundscope.verdict import Threshold, Verdict

if TYPE_CHECKING:
    from groundscope.reading import ContrastSource
    from groundscope.trace.storage.store import TraceStore

# More of the unlabelled answers than this flagged: then these are hardly faithful ones.
NEARLY_ALL = 0.9
# So many answers that are labelled as faithful, most of them flagged as well, show that it is the line that is off.
SHOWN_FAITHFUL = 10
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScoredAnswers:
    """Answers as a detector judged them.

    Attributes:
        scores: Of all answers.
        labels: (answer,) 1 hallucinated, 0 faithful, NaN without a label.
        sentence_labels: (sentence,) likewise.
        present: Where the detector draws its lines without a profile.
        fingerprint: Of the model and template that read.
        sources: How many different contexts they have.
        unread: Answers without a score, by outcome.
        bad: Lines that held no record.
    """

    scores: CalibrationScores
    labels: npt.NDArray[np.float64]
    sentence_labels: npt.NDArray[np.float64]
    present: Threshold
    fingerprint: dict[str, Any]
    sources: int
    unread: dict[str, int] = field(default_factory=dict)
    bad: int = 0


@dataclass(frozen=True)
class Rates:
    """Shares of answers that are flagged, that hold a flagged sentence, and that hold a marked stretch."""

    response: float
    sentence: float | None
    span: float


@dataclass(frozen=True)
class Calibration:
    """Lines that keep a goal, and what they change.

    Attributes:
        lines: The lines.
        goal: What they keep.
        unlabelled: Answers that counted as faithful without a label.
        faithful: Answers labelled as faithful.
        hallucinated: Answers labelled as hallucinated.
        before: What the present lines flag, of the answers that the new ones were drawn on.
        after: What the new lines flag of them.
    """

    lines: Lines
    goal: Goal
    unlabelled: int
    faithful: int
    hallucinated: int
    before: Rates
    after: Rates

    @property
    def used(self) -> int:
        """Answers that the lines were drawn on."""
        return self.unlabelled + self.faithful + (self.hallucinated if self.goal.precision is not None else 0)

    def __str__(self) -> str:
        if self.goal.precision is not None:
            return f"{self.used} labelled answers, {self.hallucinated} of them hallucinated"
        parts = [f"{self.unlabelled} answers without a label, taken as faithful"] * bool(self.unlabelled)
        parts += [f"{self.faithful} labelled as faithful"] * bool(self.faithful)
        return " and ".join(parts)


def prepare_answers(
    source: str | Path, detector: Detector, options: ReadingOptions, goal: Goal, limit: int | None = None
) -> PreparedData:
    """Look at answers to calibrate on, before a model reads them; the same answer is taken once.

    Args:
        source: JSON Lines, or a trace store.
        detector: Fitted, if it learns.
        options: How a file is read.
        goal: What the lines are to keep.
        limit: Only the first so many records.

    Raises:
        InputError: If there are too few answers for the goal, or the detector learnt from some of them.
        PrerequisiteError: If the detector must learn first.
    """
    if isinstance(detector, LearnedDetector):
        detector.check_fitted()
    prepared = prepare_data(source, [detector], options, limit=limit, only_labelled=False)
    keep: dict[tuple[object, ...], int] = {}
    for place, example in enumerate(prepared.examples):
        keep.setdefault((example.question, example.passages, example.response), place)
    again = len(prepared.examples) - len(keep)
    if again:
        _log.warning("%d answers stand there more than once and count once: copies make no promise surer.", again)
        prepared = replace(
            prepared,
            examples=[prepared.examples[i] for i in keep.values()],
            places=[prepared.places[i] for i in keep.values()],
        )
    readable = prepared.readable
    if isinstance(detector, LearnedDetector) and (seen := [item for item in readable if detector.has_seen(item)]):
        raise InputError(
            f"The detector {detector.name!r} learnt from the sources of {len(seen)} of these {len(readable)} answers, "
            f"for instance {seen[0].id!r}: it scores them lower than new ones, and a promise would not hold. "
            "Calibrate on answers that it has not seen."
        )
    check_enough([label_of(example) for example in readable], goal)
    return prepared


def check_enough(labels: Sequence[bool | None], goal: Goal) -> None:
    """Refuse answers that are too few for a goal whatever they score.

    Args:
        labels: Whether hallucinated; ``None`` without a label.
        goal: The goal.

    Raises:
        InputError: If they are; the message says how many are needed.
    """
    if goal.precision is None:
        goal.promise.line(np.zeros(sum(label is not True for label in labels)))
        return
    truth = np.array([label for label in labels if label is not None], dtype=bool)
    if not len(truth):
        raise InputError(
            "A precision needs answers that are labelled ('hallucinated': true or false). "
            f"Got {len(labels)} answers without; label some, or promise --max-false-alarm."
        )
    precision_line(truth, truth * len(truth) + np.arange(len(truth)), goal.precision, goal.confidence)


def read_answers(
    prepared: PreparedData,
    detector: Detector,
    *,
    contrast: ContrastSource = "auto",
    progress: Progress | None = None,
) -> ScoredAnswers:
    """Let a detector judge answers as ``score`` would.

    Args:
        prepared: See :func:`prepare_answers`.
        detector: The detector.
        contrast: Where random documents come from; of a store, they were drawn already.
        progress: Wraps the examples of a file, told their number.

    Raises:
        InputError: If none of them could be scored.
        MismatchError: If they were read by another model than the detector learnt from.
    """
    if prepared.store is None:
        verdicts, present, fingerprint = _from_file(prepared, detector, contrast, progress)
    else:
        verdicts, present, fingerprint = _from_store(prepared, prepared.store, detector)
    return _collected(verdicts, present, fingerprint, len(prepared.bad))


def calibrate(answers: ScoredAnswers, goal: Goal, *, assume_faithful: bool = False, seed: int = 0) -> Calibration:
    """Draw lines that keep a goal.

    For false alarms, answers without a label count as faithful, and labelled hallucinated ones are left out. Some of
    the unlabelled ones may be unsupported: as long as such answers score higher than faithful ones, they only make the
    lines stricter, so the promise is kept and fewer are found. A precision is about labelled answers only.

    Args:
        answers: The answers.
        goal: What the lines are to keep.
        assume_faithful: Whether to go on where nearly all unlabelled answers are flagged by the present line.
        seed: Of the draw of one sentence from each answer, for promises per sentence.

    Raises:
        InputError: If there are too few answers, nearly all are flagged, or the detector judges no sentences though
            these are to be promised.
    """
    labels = answers.labels
    known = ~np.isnan(labels)
    wrong = labels == 1
    check_enough([bool(label) if there else None for label, there in zip(labels, known, strict=True)], goal)
    if goal.precision is not None:
        used = answers.scores.chosen(known)
        marks = answers.sentence_labels[known[answers.scores.answer]] if len(answers.scores.sentence) else None
        lines = used.precise_lines(labels[known] == 1, goal, marks, seed)
    else:
        used = answers.scores.chosen(~wrong)
        if not assume_faithful:
            _check_faithful(answers.scores.response >= answers.present.response, labels)
        lines = used.lines(goal, seed)
    return Calibration(
        lines,
        goal,
        unlabelled=0 if goal.precision is not None else int((~known).sum()),
        faithful=int((labels == 0).sum()),
        hallucinated=int(wrong.sum()),
        before=_rates(used, answers.present.response, answers.present.sentence, answers.present.span),
        after=_rates(used, lines.response, lines.sentence, lines.span),
    )


def label_of(example: Example) -> bool | None:
    """Return whether an answer is hallucinated, ``None`` if nobody labelled it, or in a kind that is not known."""
    if example.labels is None and example.hallucinated is None:
        return None
    try:
        return response_label(example)
    except InputError:
        return None


def _check_faithful(flagged: npt.NDArray[np.bool_], labels: npt.NDArray[np.float64]) -> None:
    unlabelled, faithful = flagged[np.isnan(labels)], flagged[labels == 0]
    if not len(unlabelled) or unlabelled.mean() <= NEARLY_ALL:
        return
    if len(faithful) >= SHOWN_FAITHFUL and faithful.mean() > 0.5:
        return
    raise InputError(
        f"{int(unlabelled.sum())} of {len(unlabelled)} answers without a label are flagged by the detector's present "
        "line, so they are hardly the faithful answers that a line can be drawn on. See whether question and context "
        f"are the right ones, label some answers (with {SHOWN_FAITHFUL} faithful ones that are mostly flagged as well "
        "it is the line that is off), or insist with --assume-faithful (assume_faithful=True)."
    )


def _rates(scores: CalibrationScores, response: float, sentence: float | None, span: float) -> Rates:
    marked = None
    if sentence is not None and len(scores.sentence):
        marked = float((scores.highest_sentences >= sentence).mean())
    return Rates(float((scores.response >= response).mean()), marked, float((scores.span >= span).mean()))


def _from_file(
    prepared: PreparedData, detector: Detector, contrast: ContrastSource, progress: Progress | None
) -> tuple[list[tuple[Example, Verdict]], Threshold, dict[str, Any]]:
    from groundscope.lm.prompt.template import PromptTemplate
    from groundscope.scope import Scope

    options, examples = prepared.options, prepared.examples
    scope = Scope(
        options.language_model(),
        detector,
        template=None if options.template is None else PromptTemplate.from_file(options.template),
        contrast=contrast,
        batch_size=options.batch_size,
        seed=options.seed,
        evidence=False,
    )
    present = scope.threshold
    shown: Iterable[Example] = progress(examples, len(examples)) if progress else examples
    verdicts = list(scope.score_many(iter(shown), others=examples[:OTHERS]))
    return list(zip(examples, verdicts, strict=True)), present, scope.reader.fingerprint


def _from_store(
    prepared: PreparedData, store: TraceStore, detector: Detector
) -> tuple[list[tuple[Example, Verdict]], Threshold, dict[str, Any]]:
    from groundscope.assembly import Assembler
    from groundscope.detectors.thresholds import reference_threshold
    from groundscope.lm.prompt.template import PromptTemplate

    fingerprint = store.fingerprint
    if isinstance(detector, LearnedDetector):
        detector.check_reader(fingerprint)
    present: Threshold | None = getattr(detector, "threshold_", None)
    if present is None:
        options = replace(prepared.options, model=prepared.options.model or fingerprint["model"])
        lm = options.language_model()
        template = PromptTemplate() if options.template is None else PromptTemplate.from_file(options.template)
        now = lm.fingerprint(template)
        if any(now[name] != fingerprint.get(name) for name in now if name != "model"):
            raise MismatchError(
                f"The trace store {str(store.folder)!r} was read by another {fingerprint['model']!r}, or under another "
                "template. Name the same --model and --template, or extract again."
            )
        present = reference_threshold(lm, detector, template)
    opened = prepared.read([detector])
    assembler = Assembler(detector, fingerprint["model"])
    judged = [(item.example, assembler.verdict(item.example, [item.trace], present)) for item in opened.traced]
    judged += [
        (
            Example("", (), "", id=item.id),
            assembler.unscored(Example("", (), "", id=item.id), item.outcome, item.message),
        )
        for item in opened.unread
    ]
    return judged, present, fingerprint


def _collected(
    judged: Sequence[tuple[Example, Verdict]], present: Threshold, fingerprint: dict[str, Any], bad: int
) -> ScoredAnswers:
    scored = [(example, verdict) for example, verdict in judged if verdict.score is not None and verdict.tokens]
    outcomes = Counter(verdict.outcome for _, verdict in judged if verdict.score is None)
    if not scored:
        failed = next((verdict.message for _, verdict in judged if verdict.outcome == "failed"), "")
        raise InputError(f"None of these {len(judged)} answers could be scored. {failed}".strip())
    # A detector without a sentence model has sentences whose flags come from spans, and no line for them.
    judges = all(item.probability is not None for _, verdict in scored for item in verdict.sentences)
    sentences = [
        (number, item, _sentence_label(example, item.start, item.end))
        for number, (example, verdict) in enumerate(scored)
        for item in (verdict.sentences if judges else ())
        if item.score is not None
    ]
    chances = [verdict.probability for _, verdict in scored]
    scores = CalibrationScores(
        np.array([verdict.score for _, verdict in scored], dtype=np.float64),
        np.array([max(token.level for token in verdict.tokens) for _, verdict in scored]),
        np.array([item.score for _, item, _ in sentences], dtype=np.float64),
        np.array([number for number, _, _ in sentences], dtype=np.int64),
        None if None in chances else np.array(chances, dtype=np.float64),
        np.array([item.probability for _, item, _ in sentences], dtype=np.float64) if sentences else None,
    )
    return ScoredAnswers(
        scores,
        np.array([_as_number(label_of(example)) for example, _ in scored]),
        np.array([label for _, _, label in sentences], dtype=np.float64),
        present,
        fingerprint,
        len({example.group for example, _ in scored}),
        dict(sorted(outcomes.items())),
        bad,
    )


def _sentence_label(example: Example, start: int, end: int) -> float:
    label = label_of(example)
    if not label:
        return _as_number(label)
    if kind_of(example) not in FINE_KINDS or not example.labels:
        return np.nan
    return float(any(item.start < end and start < item.end for item in example.labels))


def _as_number(label: bool | None) -> float:
    return np.nan if label is None else float(label)
