"""Contrast: how much likelier a random document makes a token than the passages do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from groundscope.detectors.base import Detector, Scores

if TYPE_CHECKING:
    from groundscope.trace.trace import Trace


class Contrast(Detector):
    """log p(token | random document) - log p(token | passages), in nats.

    A token that the passages support becomes likelier when they are read; one that the model would have
    written anyway does not.
    """

    name = "contrast"
    summary = "log p under a random document minus log p under the passages"
    reference = "pointwise mutual information between token and passages"

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that it reads."""
        return ("token_logprob", "token_logprob_contrast")

    def token_scores(self, trace: Trace) -> Scores:
        """Score every response token, in nats."""
        return trace["token_logprob_contrast"].astype(np.float64) - trace["token_logprob"]
