"""Baselines that read the output distribution alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from groundscope.detectors.base import Detector, Scores

if TYPE_CHECKING:
    from groundscope.trace.trace import Trace


class Perplexity(Detector):
    """-log p(token), in nats; the response score is the logarithm of the perplexity."""

    name = "perplexity"
    summary = "surprise at each token, passages read"
    reference = "perplexity"

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that it reads."""
        return ("token_logprob",)

    def token_scores(self, trace: Trace) -> Scores:
        """Score every response token, in nats, at least 0."""
        return -trace["token_logprob"].astype(np.float64)


class Entropy(Detector):
    """Entropy of the output distribution before each token, in nats."""

    name = "entropy"
    summary = "uncertainty before each token, passages read"
    reference = "predictive entropy; its mean is length-normalised entropy"

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that it reads."""
        return ("token_entropy",)

    def token_scores(self, trace: Trace) -> Scores:
        """Score every response token, in nats, at least 0."""
        return trace["token_entropy"].astype(np.float64)


class MaxSurprise(Perplexity):
    """-log p(token), in nats; the response score is that of its most surprising token."""

    name = "max-surprise"
    summary = "surprise at the most surprising token, passages read"
    reference = "maximum of -log p, SelfCheckGPT, arXiv 2303.08896, section 4"
    aggregation = "maximum over tokens"

    def response_score(self, scores: Scores) -> float:
        """Return the highest of the (token,) scores; NaN entries do not count."""
        return float(np.nanmax(scores))


class Energy(Detector):
    """Minus the log-sum-exp of the logits before each token: the energy at temperature 1.

    A model's logits have no natural zero, so energies of different models cannot be compared.
    """

    name = "energy"
    summary = "free energy of the logits before each token, passages read"
    reference = "Energy, arXiv 2010.03759, eq. 4"

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that it reads."""
        return ("token_energy",)

    def token_scores(self, trace: Trace) -> Scores:
        """Score every response token, in nats."""
        return trace["token_energy"].astype(np.float64)
