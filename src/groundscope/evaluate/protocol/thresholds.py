"""Where to draw the line: chosen on dev units for a stated objective."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from groundscope.errors import InputError
from groundscope.evaluate.metrics.binary import Curve, Floats, Labels

_GRAMMAR = "'f1', 'precision:P' or 'fpr:Q' with P and Q in the range [0, 1], for instance 'precision:0.9'"


@dataclass(frozen=True)
class Objective:
    """What a threshold is to achieve on dev.

    Attributes:
        kind: ``f1``: the best F1; ``precision``: the best recall at a precision of at least ``level``;
            ``fpr``: the best recall at a false-positive rate of at most ``level``.
        level: The bound; unused for ``f1``.
    """

    kind: str = "f1"
    level: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Objective:
        """Read ``f1``, ``precision:0.9`` or ``fpr:0.05``.

        Raises:
            InputError: If it is none of these.
        """
        kind, colon, level = str(text).partition(":")
        if kind == "f1" and not colon:
            return cls()
        try:
            bound = float(level)
        except ValueError:
            bound = float("nan")
        if kind not in ("precision", "fpr") or not 0 <= bound <= 1:
            raise InputError(f"An objective must be {_GRAMMAR}. Got {text!r} instead.")
        return cls(kind, bound)

    def __str__(self) -> str:
        return self.kind if self.kind == "f1" else f"{self.kind}:{self.level:g}"


@dataclass(frozen=True)
class Choice:
    """A chosen threshold.

    Attributes:
        threshold: A unit is flagged if its score is at least this.
        met: Whether the objective's bound holds on dev with something flagged; if not, the threshold lies
            above every dev score.
    """

    threshold: float
    met: bool


def choose_threshold(labels: Labels, scores: Floats, objective: Objective, weights: Floats | None = None) -> Choice:
    """Choose a threshold on dev units.

    It is put half-way between two neighbouring scores, so that it does not hang on one unit's exact score.

    Args:
        labels: (unit,) whether hallucinated; both classes.
        scores: (unit,) finite.
        objective: What to achieve.
        weights: (unit,) how much each counts, such as its characters.

    Raises:
        InputError: If there is one class only, or the arrays do not match.
    """
    curve = Curve.of(labels, scores, weights)
    if not curve.positives or not curve.negatives:
        raise InputError(
            "A threshold is chosen on units of both classes. "
            f"Got {curve.negatives:g} faithful and {curve.positives:g} hallucinated."
        )
    if objective.kind == "f1":
        allowed = np.ones(len(curve.thresholds), dtype=bool)
        value = curve.f1
    else:
        flagged = np.maximum(curve.hits + curve.false_alarms, 1e-300)
        if objective.kind == "precision":
            allowed = curve.hits / flagged >= objective.level
        else:
            allowed = curve.false_alarms / curve.negatives <= objective.level
        value = curve.hits
    if not (allowed & (value > 0)).any():
        return Choice(float(np.nextafter(curve.thresholds[0], np.inf)), met=False)
    # Of equally good points the first one flags the fewest.
    point = int(np.argmax(np.where(allowed, value, -1.0)))
    upper = curve.thresholds[point]
    lower = curve.thresholds[point + 1] if point + 1 < len(curve.thresholds) else upper
    middle = lower + (upper - lower) / 2
    return Choice(float(middle if lower < middle <= upper else upper), met=True)
