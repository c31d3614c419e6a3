"""Thresholds that keep a promise about false alarms, or about precision, whatever the scores' distribution.

The bounds are exact binomial ones: they hold with the stated confidence over the draw of the calibration set, as long
as what is judged later is drawn like it (Learn then Test, Angelopoulos et al., arXiv 2110.01052; split conformal
prediction).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from groundscope.errors import InputError, is_finite

Floats = npt.NDArray[np.float64]
# More than anybody calibrates on; a promise that needs more is refused as such.
_MOST = 100_000_000


@dataclass(frozen=True)
class Promise:
    """At most a share of the faithful units is flagged.

    Attributes:
        max_false_alarm: That share, in (0, 1).
        confidence: Probability, over the draw of the calibration set, that the bound holds, in (0, 1).

    Raises:
        InputError: If one is out of range.
    """

    max_false_alarm: float = 0.1
    confidence: float = 0.9

    def __post_init__(self) -> None:
        check_open(
            "max_false_alarm", self.max_false_alarm, "No finite set of answers can show that none is ever flagged."
        )
        check_open("confidence", self.confidence, "No finite set of answers shows a bound for certain.")

    @property
    def needed(self) -> int:
        """The fewest faithful units on which the promise can be made at all."""
        return _needed(1 - self.max_false_alarm, 1 - self.confidence)

    def allowed(self, count: int) -> int | None:
        """Return how many of ``count`` faithful units may lie above the line; ``None`` if these are too few."""
        from scipy.stats import binom

        if count < self.needed:
            return None
        # ppf gives the smallest k with P(Bin <= k) >= delta: the one before it, unless it is met exactly.
        k = int(binom.ppf(1 - self.confidence, count, self.max_false_alarm))
        while k >= 0 and binom.cdf(k, count, self.max_false_alarm) > 1 - self.confidence:
            k -= 1
        return k

    def line(self, faithful: npt.ArrayLike, *, unit: str = "answers") -> float:
        """Return the lowest threshold that keeps the promise; a unit is flagged if its score is at least this.

        With n scores and k of them allowed above the line, the share of faithful units above the (n-k)-th smallest
        score exceeds ``max_false_alarm`` with a probability of at most P(Bin(n, max_false_alarm) <= k).

        Args:
            faithful: (unit,) finite scores of faithful units, none of which the detector learnt from.
            unit: What they are, for messages.

        Raises:
            InputError: If there are too few of them; the message says how many are needed.
        """
        scores = _finite(faithful)
        k = self.allowed(len(scores))
        if k is None:
            raise InputError(
                f"At most {self.max_false_alarm:g} false alarms with a confidence of {self.confidence:g} can be "
                f"promised from {self.needed} faithful {unit} on. Got {len(scores)}; add more, or promise less."
            )
        return float(np.nextafter(np.sort(scores)[len(scores) - 1 - k], np.inf))

    def __str__(self) -> str:
        return f"at most {self.max_false_alarm:.3g} false alarms with confidence {self.confidence:.3g}"


def precision_line(labels: npt.ArrayLike, scores: npt.ArrayLike, precision: float, confidence: float = 0.9) -> float:
    """Return the lowest threshold at which flagged units are hallucinated at a rate of at least ``precision``.

    Candidate lines flag the top m units. Given the score below them, their labels are drawn from what lies above it,
    so the false ones among them follow a binomial law. The lines are tested from the strictest one down, in an order
    fixed beforehand, and the first that fails ends the search: no correction for their number is needed.

    Args:
        labels: (unit,) whether hallucinated.
        scores: (unit,) finite.
        precision: Wanted, in (0, 1).
        confidence: Probability that it is reached on units drawn alike, in (0, 1).

    Raises:
        InputError: If no line can be shown to reach it; the message says how many flagged units are needed at least.
    """
    from scipy.stats import binom

    check_open("precision", precision, "No finite set of answers can show that every flag is right.")
    check_open("confidence", confidence, "No finite set of answers shows a bound for certain.")
    values, truth = _finite(scores), np.asarray(labels, dtype=bool)
    if truth.shape != values.shape:
        raise InputError(f"One label per score is needed. Got {truth.size} labels and {values.size} scores instead.")
    order = np.argsort(-values, kind="stable")
    values, wrong = values[order], np.cumsum(~truth[order])
    least = _needed(precision, 1 - confidence)
    found: float | None = None
    for m in range(least, len(values)):
        if binom.cdf(wrong[m - 1], m, 1 - precision) > 1 - confidence:
            break
        # Units that share the next one's score lie below the line as well.
        found = float(np.nextafter(values[m], np.inf))
    if found is None:
        raise InputError(
            f"A precision of {precision:g} with a confidence of {confidence:g} cannot be shown on these {len(values)} "
            f"units, {int(truth.sum())} of them hallucinated. At least {least + 1} are needed, and the {least} highest "
            "of them must be hallucinated; add labelled units, or ask for less."
        )
    return found


def _needed(rate: float, risk: float) -> int:
    """Smallest n with rate**n <= risk."""
    count = np.log(risk) / np.log(rate)
    return int(min(np.ceil(count - 1e-9), _MOST)) if np.isfinite(count) else _MOST


def _finite(scores: npt.ArrayLike) -> Floats:
    values: Floats = np.asarray(scores, dtype=np.float64).ravel()
    if not np.isfinite(values).all():
        raise InputError("Scores to calibrate on must be finite. Got NaN or infinity.")
    return values


def check_open(name: str, value: object, why: str) -> None:
    """Refuse a part of a promise that is no number in (0, 1)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not is_finite(value) or not 0 < value < 1:
        raise InputError(
            f"The {name!r} of a promise must be a number between 0 and 1, neither of them included. "
            f"Got {value!r} instead. {why}"
        )
