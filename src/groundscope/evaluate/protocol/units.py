"""Units of measurement: tokens, windows, spans, responses, with labels, scores and flags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from groundscope.errors import InputError, UnknownNameError
from groundscope.evaluate.metrics.binary import Floats, Labels
from groundscope.evaluate.metrics.spans import character_counts
from groundscope.evaluate.protocol.scoring import WINDOW, ExampleScore
from groundscope.evaluate.protocol.thresholds import Objective, choose_threshold
from groundscope.evaluate.results.results import Lines
from groundscope.learn.labels import FINE_KINDS, kind_of, response_label, token_labels
from groundscope.learn.windows import window_labels, window_means, window_ranges
from groundscope.text.spans import find_spans
from groundscope.text.words import word_spans
from groundscope.trace.traced import Traced, TracedExample

LEVELS = ("token", "window", "span", "response")


@dataclass(frozen=True, eq=False)
class Units:
    """The units of one level, for one candidate: tokens, windows, responses; for spans, examples.

    Attributes:
        level: Which.
        example: (unit,) position of the example that each belongs to.
        labels: (unit,) whether hallucinated.
        scores: (unit,) scores; unused for spans.
        sizes: (unit,) what each counts: 1, or the characters of an example for spans.
        marked: (unit,) how much of that is hallucinated.
        counts: (unit, 3) hits, false alarms and misses at the chosen thresholds; ``None`` if one is missing.
    """

    level: str
    example: npt.NDArray[np.int64]
    labels: Labels
    scores: Floats
    sizes: Floats
    marked: Floats
    counts: Floats | None

    @property
    def size(self) -> int:
        """Units; characters for spans."""
        return int(self.sizes.sum())

    @property
    def positives(self) -> int:
        """Those hallucinated."""
        return int(self.marked.sum())

    def select(self, mask: Labels) -> Units:
        """Return some of the units."""
        return Units(
            self.level,
            self.example[mask],
            self.labels[mask],
            self.scores[mask],
            self.sizes[mask],
            self.marked[mask],
            None if self.counts is None else self.counts[mask],
        )


class Truth:
    """What people said, at every level, computed once.

    Token, window and span levels use only examples whose labels are that fine; an example labelled as a whole
    is never scored as a span. Sentence labels are good for tokens and windows, not for spans.

    Args:
        data: Labelled examples.
    """

    def __init__(self, data: Traced) -> None:
        self.data = data
        self.kinds = [kind_of(item.example) for item in data]
        self.responses: Labels = np.array([response_label(item.example) for item in data], dtype=np.bool_)
        self.tokens: list[Labels | None] = [
            token_labels(item.example, item.trace.layout) if kind in FINE_KINDS else None
            for item, kind in zip(data, self.kinds, strict=True)
        ]
        self.ranges = [window_ranges(item.trace.tokens, WINDOW) for item in data]
        self.windows: list[Labels | None] = [
            None if labels is None else window_labels(labels, ranges)
            for labels, ranges in zip(self.tokens, self.ranges, strict=True)
        ]
        self._words: dict[int, list[tuple[int, int]]] = {}

    def fit_for(self, level: str) -> npt.NDArray[np.int64]:
        """Return the positions of the examples that can be measured at a level."""
        kinds = {"span": ("span",), "response": ("span", "sentence", "response")}.get(level, FINE_KINDS)
        return np.array([i for i, kind in enumerate(self.kinds) if kind in kinds], dtype=np.int64)

    def labels(self, level: str, index: int) -> Labels:
        """Return the labels of one example's units at ``token``, ``window`` or ``response`` level."""
        if level == "response":
            return self.responses[index : index + 1]
        labels = self.tokens[index] if level == "token" else self.windows[index]
        if labels is None:
            raise InputError(f"Example {self.data[index].example.id!r} has no labels of tokens.")
        return labels

    def words(self, index: int) -> list[tuple[int, int]]:
        """Return the words of one response; they are needed again for every candidate."""
        if index not in self._words:
            self._words[index] = word_spans(self.data[index].example.response)
        return self._words[index]

    def unit_scores(self, level: str, index: int, score: ExampleScore) -> Floats:
        """Return the scores of one example's units."""
        if level == "response":
            return np.array([score.response])
        if level == "token":
            return score.tokens
        return window_means(score.tokens, self.ranges[index]) if score.windows is None else score.windows


def check_levels(levels: Sequence[str]) -> tuple[str, ...]:
    """Refuse unknown levels; return them in a fixed order.

    Raises:
        UnknownNameError: If one is not known.
    """
    for level in levels:
        if level not in LEVELS:
            raise UnknownNameError("level", level, LEVELS)
    return tuple(level for level in LEVELS if level in levels)


def choose_lines(
    truth: Truth,
    scores: Sequence[ExampleScore | None],
    dev: npt.NDArray[np.int64],
    objective: Objective,
    own: tuple[float, float] | None = None,
) -> Lines:
    """Choose the thresholds of every level on dev.

    The span threshold is the best one for characters: tokens weighted by how many they cover.

    Args:
        truth: Of all examples.
        scores: Of all examples.
        dev: Positions of the dev examples.
        objective: What to achieve.
        own: Thresholds of response and span that a loaded detector brings along.
    """
    found: dict[str, float | None] = {}
    unmet = []
    for level in LEVELS:
        if own is not None and level in ("response", "span"):
            found[level] = own[0] if level == "response" else own[1]
            continue
        rows = [int(i) for i in np.intersect1d(truth.fit_for(level), dev) if scores[i] is not None]
        labels, values, weights = [], [], []
        for index in rows:
            score = scores[index]
            assert score is not None  # noqa: S101 - rows hold only those
            if level == "span":
                labels.append(truth.labels("token", index))
                values.append(score.stretches)
                weights.append(_token_lengths(truth.data[index]))
            else:
                labels.append(truth.labels(level, index))
                values.append(truth.unit_scores(level, index, score))
        all_labels = np.concatenate(labels) if labels else np.zeros(0, dtype=bool)
        if not all_labels.any() or all_labels.all():
            found[level] = None
            continue
        choice = choose_threshold(
            all_labels, np.concatenate(values), objective, np.concatenate(weights) if weights else None
        )
        found[level] = choice.threshold
        if not choice.met:
            unmet.append(level)
    return Lines(**found, unmet=tuple(unmet))


def gather(
    truth: Truth,
    level: str,
    scores: Sequence[ExampleScore | None],
    lines: Sequence[Lines | None],
    rows: npt.NDArray[np.int64],
) -> Units:
    """Collect the units of examples.

    Args:
        truth: Of all examples.
        level: One of :data:`LEVELS`.
        scores: Of all examples.
        lines: Of all examples: the thresholds of the fold in which each is measured.
        rows: Positions of the examples to measure.
    """
    usable = [int(i) for i in np.intersect1d(rows, truth.fit_for(level)) if scores[i] is not None]
    if level == "span":
        return _span_units(truth, scores, lines, usable)
    labels, values, flagged = [], [], []
    decided = True
    for index in usable:
        score = scores[index]
        assert score is not None  # noqa: S101 - usable holds only those
        line = lines[index]
        threshold = None if line is None else getattr(line, level)
        labels.append(truth.labels(level, index))
        values.append(truth.unit_scores(level, index, score))
        decided &= threshold is not None
        flagged.append(values[-1] >= (np.inf if threshold is None else threshold))
    example = np.repeat(np.array(usable, dtype=np.int64), [len(item) for item in labels])
    label = np.concatenate(labels) if labels else np.zeros(0, dtype=bool)
    flag = np.concatenate(flagged) if flagged else np.zeros(0, dtype=bool)
    counts = np.stack([label & flag, ~label & flag, label & ~flag], axis=1).astype(np.float64)
    return Units(
        level=level,
        example=example,
        labels=label,
        scores=np.concatenate(values) if values else np.zeros(0),
        sizes=np.ones(len(label)),
        marked=label.astype(np.float64),
        counts=counts if decided and usable else None,
    )


def _span_units(
    truth: Truth, scores: Sequence[ExampleScore | None], lines: Sequence[Lines | None], usable: Sequence[int]
) -> Units:
    counts = np.zeros((len(usable), 3))
    decided = bool(usable)
    sizes = np.zeros(len(usable))
    for row, index in enumerate(usable):
        example, layout, score, line = (
            truth.data[index].example,
            truth.data[index].trace.layout,
            scores[index],
            lines[index],
        )
        threshold = None if line is None else line.span
        decided &= threshold is not None
        found = []
        if threshold is not None and score is not None:
            offsets = np.asarray(layout.response_offsets).tolist()
            found = [
                (s, e)
                for s, e, _ in find_spans(
                    example.response, offsets, score.stretches, threshold, words=truth.words(index)
                )
            ]
        marked = [(label.start, label.end) for label in example.labels or ()]
        item = character_counts(len(example.response), found, marked)
        counts[row] = item.hit, item.false_alarm, item.missed
        sizes[row] = len(example.response)
    marks = counts[:, 0] + counts[:, 2]
    return Units(
        level="span",
        example=np.array(usable, dtype=np.int64),
        labels=marks > 0,
        scores=np.zeros(len(usable)),
        sizes=sizes,
        marked=marks,
        counts=counts if decided else None,
    )


def _token_lengths(item: TracedExample) -> Floats:
    ranges = np.asarray(item.trace.layout.response_offsets).reshape(-1, 2)
    lengths: Floats = (ranges[:, 1] - ranges[:, 0]).astype(np.float64)
    return lengths
