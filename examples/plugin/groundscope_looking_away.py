"""A detector in a package of its own: did the model look at the passages when it came to a token?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from groundscope.detectors.base import Detector, Scores, check_share

if TYPE_CHECKING:
    from groundscope.trace.trace import Trace


class LookingAway(Detector):
    """The share of attention, averaged over heads and layers, that does not go to the passages.

    Args:
        enough: Share on the passages that is as good as all of it, in [0, 1]; what is beyond it does not count.

    Raises:
        InputError: If it is out of range.
    """

    name = "looking-away"
    summary = "share of attention that does not go to the passages"
    reference = "an example of a plug-in"

    def __init__(self, enough: float = 1.0) -> None:
        check_share("LookingAway", "enough", enough)
        self.enough = enough

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that it reads."""
        return ("passage_attention",)

    def token_scores(self, trace: Trace) -> Scores:
        """Score every response token, in [0, 1]; higher is less supported."""
        looked = trace["passage_attention"].astype(np.float64).sum(axis=1)  # (token, passage) -> (token,)
        return 1.0 - np.minimum(looked, self.enough)
