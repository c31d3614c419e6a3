"""Lookback Lens: a linear probe on how much each head looks back at the context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from groundscope.detectors.learned.windowed import WindowedProbe, check_units
from groundscope.errors import check_choice
from groundscope.learn.probe import LinearProbe, check_regression

CONTEXTS = {"prompt": "lookback_ratio", "passages": "lookback_ratio_passages"}

# Per variant, how features are scaled, and C where none is given: the same penalty in both.
_SCALERS = {"paper": "standard", "official": None}
_DEFAULT_C = {"paper": 0.01, "official": 1.0}


class LookbackLens(WindowedProbe):
    """Logistic regression on lookback ratios, averaged over a unit of tokens.

    ``variant='official'`` follows the released code: features are not scaled, responses shorter than a window
    are not learnt from, and predefined spans are its three units per response (see
    :func:`groundscope.learn.units.listed_units`). With ``variant='paper'`` features are standardised, so that
    the penalty weighs all heads alike and the optimiser converges; a short response is one window; and every
    marked stretch and every stretch between is a span of its own. The number of steps is the authors' in both, and
    so is the strength of the penalty: ratios differ by about 0.1 (standard deviation), so that their C of 1 is
    one of 0.01 where features are standardised. The label is 1 = hallucinated, where the authors' is 1 = factual.

    Args:
        context: What counts as context: ``prompt``, everything before the generation header, as the authors
            do, or ``passages`` alone.
        units: What it learns from: ``window`` (sliding), ``span`` (predefined) or ``response``. The first two
            need labels of spans or sentences. A probe that learnt from spans scores sliding windows.
        window_size: Tokens in a window.
        stride: Tokens from one window to the next, at most ``window_size``.
        variant: ``paper`` or ``official``.
        C: Inverse strength of the L2 penalty; by default 0.01, for the official variant 1.
        class_weight: ``balanced``, or ``None`` as published.
        max_iter: Steps after which the optimiser gives up.
        pooling: ``mean`` or ``max`` of token scores for the response; not used for ``units='response'``.

    Raises:
        InputError: If a parameter is out of range.
    """

    name = "lookback-lens"
    summary = "linear probe on the share of attention that each head gives to the context"
    reference = "Lookback Lens, arXiv 2407.07071"

    def __init__(
        self,
        context: str = "prompt",
        units: str = "window",
        window_size: int = 8,
        stride: int = 1,
        variant: str = "paper",
        C: float | None = None,
        class_weight: str | None = None,
        max_iter: int = 1000,
        pooling: str = "mean",
    ) -> None:
        check_choice("LookbackLens", "context", context, CONTEXTS)
        check_units("LookbackLens", units, window_size, stride, variant, pooling)
        check_regression("LookbackLens", 1.0 if C is None else C, class_weight, max_iter)
        self.context = context
        self.units = units
        self.window_size = window_size
        self.stride = stride
        self.variant = variant
        self.C = C
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.pooling = pooling

    @property
    def signal(self) -> str:
        """Name of the signal whose values are the features."""
        return CONTEXTS[self.context]

    def check_reader(self, fingerprint: Mapping[str, Any]) -> None:
        """Refuse to score what another model reads.

        Of a classifier that the authors released only the shape is known: what its fingerprint leaves open
        (``None``) is not compared.

        Raises:
            MismatchError: See :meth:`groundscope.detectors.learnable.LearnedDetector.check_reader`.
        """
        open_ = {name for name, value in self.fingerprint_.items() if value is None}
        super().check_reader({name: value for name, value in fingerprint.items() if name not in open_})

    def _new_probe(self) -> LinearProbe:
        return LinearProbe(
            _SCALERS[self.variant],
            C=_DEFAULT_C[self.variant] if self.C is None else self.C,
            class_weight=self.class_weight,
            max_iter=self.max_iter,
        )
