"""LUMINA: internal knowledge against external context, without training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from groundscope.detectors.base import Detector, Scores, check_share

if TYPE_CHECKING:
    from groundscope.trace.trace import Trace


class Lumina(Detector):
    """weight * internal - (1 - weight) * external score of each token.

    Internal is the calibrated information processing rate, in [0, ln V]; external is the squared MMD
    between the output distributions under the passages and under a random document, in [0, 2]. The mix is
    as published; the two scales differ, so 0.5 is not a balance.

    Args:
        weight: The paper's lambda, in [0, 1].

    Raises:
        InputError: If ``weight`` is outside [0, 1].
    """

    name = "lumina"
    summary = "information processing rate against distribution shift under a random document"
    reference = "LUMINA, arXiv 2509.21875, eq. 4-11"

    def __init__(self, weight: float = 0.5) -> None:
        check_share("Lumina", "weight", weight)
        self.weight = weight

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that it reads."""
        return ("information_processing_rate_calibrated", "mmd")

    def token_scores(self, trace: Trace) -> Scores:
        """Score every response token."""
        internal = trace["information_processing_rate_calibrated"].astype(np.float64)
        return self.weight * internal - (1 - self.weight) * trace["mmd"]
