"""What thresholds are to keep: a promise about false alarms, or about precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from groundscope.errors import InputError, check_choice
from groundscope.learn.promise import Promise, check_open

Unit = Literal["response", "sentence"]


@dataclass(frozen=True)
class Goal:
    """What the lines are to keep; exactly one of false alarms and precision.

    Attributes:
        max_false_alarm: At most this share of faithful answers is flagged, in (0, 1).
        precision: At least this share of the flagged answers is unsupported, in (0, 1).
        confidence: Probability, over the draw of the answers, that it holds, in (0, 1).
        unit: What the line for sentences counts: ``response``, answers with any flagged sentence; or ``sentence``,
            sentences. The lines for responses and spans always count answers.

    Raises:
        InputError: If a number is out of range, or both or none are given.
    """

    max_false_alarm: float | None = None
    precision: float | None = None
    confidence: float = 0.9
    unit: Unit = "response"

    def __post_init__(self) -> None:
        if (self.max_false_alarm is None) == (self.precision is None):
            raise InputError(
                "A goal is either a share of false alarms (max_false_alarm, --max-false-alarm) or a precision. "
                f"Got {self.max_false_alarm!r} and {self.precision!r}."
            )
        check_choice("Goal", "unit", self.unit, get_args(Unit))
        if self.precision is not None:
            check_open("precision", self.precision, "No finite set of answers can show that every flag is right.")
            check_open("confidence", self.confidence, "No finite set of answers shows a bound for certain.")
        else:
            _ = self.promise

    @property
    def promise(self) -> Promise:
        """The promise about false alarms.

        Raises:
            InputError: If it is one about precision.
        """
        if self.max_false_alarm is None:
            raise InputError(f"This goal promises a precision, no share of false alarms. Got {self}.")
        return Promise(self.max_false_alarm, self.confidence)

    def __str__(self) -> str:
        sure = f"with {_percent(self.confidence)} confidence"
        if self.max_false_alarm is None:
            flagged = "flagged answers and sentences" if self.unit == "sentence" else "flagged answers"
            return f"at least {_percent(self.precision or 0)} of {flagged} are unsupported, {sure}"
        units = "faithful answers, and of their sentences," if self.unit == "sentence" else "faithful answers"
        return f"at most {_percent(self.max_false_alarm)} of {units} are flagged, {sure}"


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"
