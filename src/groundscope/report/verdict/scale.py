"""Score to colour.

Scores are unbounded real numbers, different for every detector, so a colour means a score in relation to the
verdict's own span threshold and the range of its tokens: 0 is the palest, 0.5 the threshold, 1 the strongest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from groundscope.verdict import Verdict


@dataclass(frozen=True)
class Scale:
    """A piecewise linear map from scores to [0, 1].

    Attributes:
        low: Score of level 0.
        mid: Score of level 0.5, the span threshold.
        high: Score of level 1.
    """

    low: float
    mid: float
    high: float

    @classmethod
    def of(cls, verdict: Verdict) -> Scale:
        """Make the scale of a verdict.

        Each side of the threshold reaches to the furthest token on that side, but is at least a quarter as
        wide as the other side, so that a token just over the line does not take the strongest colour.
        Without a threshold the middle of the range takes its place.
        """
        scores = [token.level for token in verdict.tokens if math.isfinite(token.level)]
        if verdict.threshold is not None and math.isfinite(verdict.threshold.span):
            mid = verdict.threshold.span
        elif scores:
            mid = min(scores) / 2 + max(scores) / 2
        else:
            mid = 0.0
        below = max(0.0, mid - min(scores, default=mid))
        above = max(0.0, max(scores, default=mid) - mid)
        return cls(low=mid - max(below, above / 4), mid=mid, high=mid + max(above, below / 4))

    def level(self, score: float) -> float:
        """Return the colour level of a score, in [0, 1]."""
        if score >= self.mid:
            width = self.high - self.mid
            return 0.5 if width == 0 else min(1.0, 0.5 + 0.5 * (score - self.mid) / width)
        width = self.mid - self.low
        return 0.0 if width == 0 else max(0.0, 0.5 - 0.5 * (self.mid - score) / width)
