"""The linear probe: scaling, selection and logistic regression, kept as one weight per feature."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from groundscope.errors import InputError, check_choice, check_count, is_finite
from groundscope.learn.labels import Labels, check_both_classes

_log = logging.getLogger(__name__)
Floats = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.floating[Any]]
SCALERS = ("minmax", "standard", None)
CLASS_WEIGHTS = ("balanced", None)


class LinearProbe:
    """Log-odds of hallucination as a weighted sum of features; label 1 is hallucinated.

    What is fitted, in this order, is a scaler, a selector and a logistic regression (L2, lbfgs). Since all are
    linear they are kept as one vector, and scoring is one product.

    Args:
        scaler: ``minmax`` (to [0, 1]), ``standard`` (zero mean, unit variance) or ``None``, fitted on the units.
        selector: A scikit-learn selector with ``fit(X, y)`` and ``get_support()``, or ``None`` for all features;
            a copy of it is fitted on the scaled units.
        C: Inverse strength of the L2 penalty, above 0.
        class_weight: ``balanced`` gives both classes the same total weight; ``None`` counts every unit once.
        max_iter: Steps after which the optimiser gives up.

    Attributes:
        coef_: Weights of the unscaled features, (feature,); 0 where not selected.
        intercept_: Log-odds where all features are 0.
        selected_: Which features were selected, (feature,).
        iterations_: Steps that the optimiser took.
        converged_: Whether it was content before ``max_iter``.

    Raises:
        InputError: If a parameter is out of range.
    """

    coef_: Floats
    intercept_: float
    selected_: Labels
    iterations_: int
    converged_: bool

    def __init__(
        self,
        scaler: str | None = None,
        selector: Any = None,
        *,
        C: float = 1.0,
        class_weight: str | None = None,
        max_iter: int = 1000,
    ) -> None:
        check_choice("LinearProbe", "scaler", scaler, SCALERS)
        check_regression("LinearProbe", C, class_weight, max_iter)
        self.scaler = scaler
        self.selector = selector
        self.C = C
        self.class_weight = class_weight
        self.max_iter = max_iter

    def fit(self, features: Matrix, labels: Labels) -> LinearProbe:
        """Learn from units.

        Args:
            features: (unit, feature), finite.
            labels: (unit,), true is hallucinated.

        Returns:
            Itself.

        Raises:
            InputError: If shapes disagree, a feature is not finite, there is one class only, or no feature varies.
        """
        from sklearn.base import clone
        from sklearn.linear_model import LogisticRegression

        features, labels = check_matrix("LinearProbe", features, labels)
        offset, factor = self._scale(features)
        scaled = features if self.scaler is None else (features - offset) * factor
        selected = np.ones(features.shape[1], dtype=np.bool_)
        if self.selector is not None:
            selected = np.asarray(clone(self.selector).fit(scaled, labels).get_support(), dtype=np.bool_)
        regression = LogisticRegression(C=self.C, class_weight=self.class_weight, max_iter=self.max_iter)
        chosen = scaled if selected.all() else scaled[:, selected]
        self.converged_ = fit_logged(regression, chosen, labels)
        self.iterations_ = int(np.max(regression.n_iter_))
        weights = np.zeros(features.shape[1])
        weights[selected] = regression.coef_[0]
        self.selected_ = selected
        self.coef_ = weights * factor
        self.intercept_ = float(regression.intercept_[0] - self.coef_ @ offset)
        return self

    def decision(self, features: Matrix) -> Floats:
        """Return the log-odds of hallucination of (..., feature) values, (...).

        Raises:
            InputError: If the number of features is another than it learnt from.
        """
        if features.shape[-1] != len(self.coef_):
            raise InputError(f"The probe has {len(self.coef_)} weights. Got {features.shape[-1]} features instead.")
        log_odds: Floats = features.astype(np.float64, copy=False) @ self.coef_ + self.intercept_
        return log_odds

    def probability(self, features: Matrix) -> Floats:
        """Return the probability of hallucination of (..., feature) values, (...), in [0, 1]."""
        probability: Floats = expit(self.decision(features))
        return probability

    def state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Return what was learnt: arrays, and facts as JSON values."""
        arrays = {"coef": self.coef_, "intercept": np.array([self.intercept_]), "selected": self.selected_}
        return arrays, {"iterations": self.iterations_, "converged": self.converged_}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` returned.

        Raises:
            InputError: If the arrays do not fit together or are not finite.
        """
        coef = np.asarray(arrays["coef"], dtype=np.float64)
        selected = np.asarray(arrays["selected"], dtype=np.bool_)
        intercept = np.asarray(arrays["intercept"], dtype=np.float64)
        if coef.ndim != 1 or selected.shape != coef.shape or intercept.shape != (1,):
            raise InputError(
                f"A probe needs a weight and a mark for each feature and one intercept. Got the shapes {coef.shape}, "
                f"{selected.shape} and {intercept.shape} instead."
            )
        if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
            raise InputError("The weights of a probe must be finite. Got NaN or infinity.")
        self.coef_, self.selected_, self.intercept_ = coef, selected, float(intercept[0])
        self.iterations_, self.converged_ = int(facts["iterations"]), bool(facts["converged"])

    def _scale(self, features: Floats) -> tuple[Floats, Floats]:
        """Offset and factor per feature; a feature that does not vary keeps the factor 1."""
        count = features.shape[1]
        if self.scaler is None:
            return np.zeros(count), np.ones(count)
        low, reach = features.min(axis=0), np.ptp(features, axis=0)
        offset, width = low, reach
        if self.scaler == "standard":
            offset, width = features.mean(axis=0), features.std(axis=0)
        # By its reach, since rounding gives a constant column a deviation; a reach of a few units in the last
        # place is rounding too.
        varies = reach > 10 * np.finfo(np.float64).eps * np.maximum(np.abs(low), np.finfo(np.float64).tiny)
        return offset, np.divide(1.0, width, out=np.ones(count), where=varies)


def fit_logged(model: Any, features: Floats, labels: npt.NDArray[Any], level: int = logging.WARNING) -> bool:
    """Fit a scikit-learn model, log that it did not converge (at ``level``), and return whether it did."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(features, labels)
    complaints = [str(item.message) for item in caught if issubclass(item.category, ConvergenceWarning)]
    for item in caught:
        if not issubclass(item.category, ConvergenceWarning):
            warnings.warn_explicit(item.message, item.category, item.filename, item.lineno)
    for complaint in complaints:
        _log.log(level, "%s did not converge: %s", type(model).__name__, complaint.splitlines()[0])
    return not complaints


def check_matrix(owner: str, features: Matrix, labels: Labels) -> tuple[Floats, Labels]:
    """Return features as float64 and labels as truth values.

    Raises:
        InputError: If they do not fit together, a feature is not finite, or there is one class only.
    """
    values: Floats = np.asarray(features, dtype=np.float64)
    labels = np.asarray(labels)
    if values.ndim != 2 or labels.shape != values.shape[:1] or values.shape[1] == 0:
        raise InputError(
            f"{owner} needs a (unit, feature) matrix and one label per unit. "
            f"Got the shapes {values.shape} and {labels.shape} instead."
        )
    if labels.dtype != np.bool_ and not np.isin(labels, (0, 1)).all():
        raise InputError(f"{owner} needs labels of 0 and 1. Got {labels[~np.isin(labels, (0, 1))][0]!r} instead.")
    labels = labels.astype(np.bool_)
    check_both_classes(owner, labels, "unit")
    if not np.isfinite(values).all():
        unit, feature = (int(place) for place in np.argwhere(~np.isfinite(values))[0])
        raise InputError(f"{owner} needs finite features. Got {values[unit, feature]} (unit {unit}, {feature=}).")
    return values, labels


def check_regression(owner: str, C: object, class_weight: object, max_iter: object) -> None:
    """Refuse parameters that no logistic regression takes.

    Raises:
        InputError: If one is out of range.
    """
    if not is_finite(C) or not isinstance(C, Real) or C <= 0:
        raise InputError(f"The 'C' parameter of {owner} must be a finite number above 0. Got {C!r} instead.")
    check_choice(owner, "class_weight", class_weight, CLASS_WEIGHTS)
    check_count(owner, "max_iter", max_iter)
