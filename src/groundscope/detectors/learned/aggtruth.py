"""AggTruth: a linear probe on aggregated attention to the passages, on selected heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from groundscope.detectors.learned.windowed import WindowedProbe, check_units
from groundscope.errors import InputError, check_choice
from groundscope.learn.probe import LinearProbe, check_regression
from groundscope.trace.trace import Trace

AGGREGATES = ("sum", "cosine", "entropy", "js")


class AggTruth(WindowedProbe):
    """Balanced logistic regression on one aggregation of every head's attention to the passages.

    Features are scaled to [0, 1] on the training units, then selected. One more feature, which may be
    selected like a head, is the share of passage tokens in what had been read at each token. Windows average
    it over their tokens; the authors' working code takes it at the window's middle.

    Args:
        aggregate: ``sum``, ``cosine``, ``entropy`` or ``js`` over the passage tokens.
        selector: Which features are used: ``spearman``, ``point-biserial``, ``lasso``, ``center``, ``random``,
            ``random-plus``, ``boruta``, or ``None`` for all; see :mod:`groundscope.learn.selectors`.
        selector_params: The selector's arguments, by name.
        units: What it learns from: ``window`` (sliding), ``span`` (predefined) or ``response``. The first two
            need labels of spans or sentences. A probe that learnt from spans scores sliding windows.
        window_size: Tokens in a window; a shorter response is one window.
        stride: Tokens from one window to the next, at most ``window_size``.
        C: Inverse strength of the L2 penalty; 0.01 is of the authors' theses, the paper is silent.
        class_weight: ``balanced`` or ``None``.
        max_iter: Steps after which the optimiser gives up.
        pooling: ``mean`` or ``max`` of token scores for the response; not used for ``units='response'``.

    Raises:
        InputError: If a parameter is out of range.
        UnknownNameError: If there is no such selector.
    """

    name = "aggtruth"
    summary = "linear probe on the aggregated attention that selected heads give to the passages"
    reference = "AggTruth, arXiv 2506.18628"
    variant = "paper"

    def __init__(
        self,
        aggregate: str = "sum",
        selector: str | None = "spearman",
        selector_params: Mapping[str, Any] | None = None,
        units: str = "window",
        window_size: int = 8,
        stride: int = 1,
        C: float = 0.01,
        class_weight: str | None = "balanced",
        max_iter: int = 10000,
        pooling: str = "mean",
    ) -> None:
        check_choice("AggTruth", "aggregate", aggregate, AGGREGATES)
        _check_selector(selector, selector_params)
        check_units("AggTruth", units, window_size, stride, self.variant, pooling)
        check_regression("AggTruth", C, class_weight, max_iter)
        self.aggregate = aggregate
        self.selector = selector
        self.selector_params = selector_params
        self.units = units
        self.window_size = window_size
        self.stride = stride
        self.C = C
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.pooling = pooling

    @property
    def signal(self) -> str:
        """Name of the signal whose values are the features."""
        return f"aggtruth_{self.aggregate}"

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that it reads."""
        return (self.signal, "passage_percentage")

    def _extra(self, trace: Trace) -> npt.NDArray[np.floating[Any]]:
        return trace["passage_percentage"][:, None]

    @property
    def _extra_count(self) -> int:
        return 1

    def _new_probe(self) -> LinearProbe:
        selector = None
        if self.selector is not None:
            from groundscope.learn.selectors import selector_from_name

            selector = selector_from_name(self.selector, **(self.selector_params or {}))
        return LinearProbe("minmax", selector, C=self.C, class_weight=self.class_weight, max_iter=self.max_iter)


def _check_selector(selector: object, params: object) -> None:
    if params is not None and not isinstance(params, Mapping):
        raise InputError(
            f"The 'selector_params' parameter of AggTruth must be a mapping or None. Got {params!r} instead."
        )
    if selector is None and params:
        raise InputError(f"The 'selector_params' parameter of AggTruth needs a 'selector'. Got {params!r} for None.")
    # The usual case is known to be right, and spares who only lists detectors the load of scikit-learn.
    if selector is None or (selector == "spearman" and not params):
        return
    from groundscope.learn.selectors import selector_from_name

    selector_from_name(selector, **(params or {}))  # type: ignore[arg-type]
