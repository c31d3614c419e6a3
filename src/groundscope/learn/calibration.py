"""Calibration without labels: puts numbers on a common scale by where they lie among those of other text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from groundscope.errors import InputError

Floats = npt.NDArray[np.float64]
CalibrationName = Literal["none", "zscore", "rank"]
# Values of the reference text that a rank calibration keeps: it is exact to a thousandth.
_KEPT = 1000


@dataclass(frozen=True)
class ZScore:
    """(value - mean) / standard deviation of a reference.

    Attributes:
        mean: Mean of the reference.
        std: Its standard deviation, above 0.
    """

    mean: float
    std: float
    name: ClassVar[str] = "zscore"

    @classmethod
    def fit(cls, values: npt.ArrayLike) -> ZScore:
        """Take mean and standard deviation of (value,) numbers.

        Raises:
            InputError: If there are none, or they are all the same, or not finite.
        """
        reference = _reference(values)
        mean, std = float(reference.mean()), float(reference.std())
        # Of numbers that are all the same, rounding may leave a trace.
        if std <= 1e-12 * max(1e-300, abs(mean)):
            raise InputError("A z-score needs reference values that differ. Got the same number throughout.")
        return cls(mean, std)

    def transform(self, values: npt.ArrayLike) -> Floats:
        """Return standard deviations above the reference's mean, in the shape of ``values``."""
        scaled: Floats = (np.asarray(values, dtype=np.float64) - self.mean) / self.std
        return scaled

    def state(self) -> list[float]:
        """Return it as plain numbers."""
        return [self.mean, self.std]

    @classmethod
    def from_state(cls, state: Sequence[float]) -> ZScore:
        """Take over what :meth:`state` returned.

        Raises:
            InputError: If it is something else.
        """
        if len(state) != 2 or not np.isfinite(state).all() or state[1] <= 0:
            raise InputError(f"A z-score is kept as mean and standard deviation. Got {list(state)[:5]!r} instead.")
        return cls(float(state[0]), float(state[1]))


@dataclass(frozen=True, eq=False)
class Rank:
    """Share of a reference that lies below a value; what equals it counts half.

    Attributes:
        reference: (value,) reference in ascending order; of a large one, evenly spaced quantiles.
    """

    reference: Floats
    name: ClassVar[str] = "rank"

    @classmethod
    def fit(cls, values: npt.ArrayLike) -> Rank:
        """Keep (value,) numbers, or a thousand quantiles of them.

        Raises:
            InputError: If there are none, or one is not finite.
        """
        reference = np.sort(_reference(values))
        if len(reference) > _KEPT:
            reference = np.quantile(reference, (np.arange(_KEPT) + 0.5) / _KEPT)
        return cls(reference)

    def transform(self, values: npt.ArrayLike) -> Floats:
        """Return ranks in [0, 1], in the shape of ``values``."""
        given = np.asarray(values, dtype=np.float64)
        below = np.searchsorted(self.reference, given, side="left")
        not_above = np.searchsorted(self.reference, given, side="right")
        ranks: Floats = (below + not_above) / (2.0 * len(self.reference))
        return ranks

    def state(self) -> list[float]:
        """Return it as plain numbers."""
        return [float(value) for value in self.reference]

    @classmethod
    def from_state(cls, state: Sequence[float]) -> Rank:
        """Take over what :meth:`state` returned.

        Raises:
            InputError: If it is something else.
        """
        reference = np.asarray(state, dtype=np.float64)
        if reference.ndim != 1 or not len(reference) or not np.isfinite(reference).all():
            raise InputError(f"Ranks are kept as a list of finite numbers. Got {list(state)[:5]!r} instead.")
        if (np.diff(reference) < 0).any():
            raise InputError("Ranks are kept as numbers in ascending order. Got others.")
        return cls(reference)


Calibration = ZScore | Rank
CALIBRATIONS: dict[str, type[ZScore] | type[Rank]] = {"zscore": ZScore, "rank": Rank}


def _reference(values: npt.ArrayLike) -> Floats:
    reference = np.asarray(values, dtype=np.float64).ravel()
    if not len(reference) or not np.isfinite(reference).all():
        raise InputError(
            f"Calibration needs at least one reference value, and all of them finite. Got {len(reference)} value(s), "
            f"{int(np.count_nonzero(~np.isfinite(reference)))} of them not finite."
        )
    return reference
