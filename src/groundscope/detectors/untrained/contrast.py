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
    written anyway does not. Spans are cut where the same difference of probabilities, which is bounded, stays
    high: a single surprising token then cannot hide its neighbours, or be hidden by them.
    """

    name = "contrast"
    summary = "log p under a random document minus log p under the passages"
    reference = "pointwise mutual information between token and passages"
    neutral = 0.0

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that it reads."""
        return ("token_logprob", "token_logprob_contrast")

    def token_scores(self, trace: Trace) -> Scores:
        """Score every response token, in nats."""
        return trace["token_logprob_contrast"].astype(np.float64) - trace["token_logprob"]

    def span_scores(self, trace: Trace) -> Scores:
        """p(token | random document) - p(token | passages), in [-1, 1]."""
        return np.exp(trace["token_logprob_contrast"].astype(np.float64)) - np.exp(trace["token_logprob"])
