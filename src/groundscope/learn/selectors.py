"""Which features a probe may use: the selectors of AggTruth as scikit-learn ones.

All follow the same rules. They are fitted on (unit, feature) values, as the probe scaled them, and labels of
which 1 is hallucinated. A column that does not vary is never selected. Where nothing passes a test, the one
column that comes closest is kept and a warning is logged; where no column varies, that is an error.

Source: AggTruth (arXiv 2506.18628), section on feature selection, and the theses that go with it. What these
leave open is decided here and said at each class.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import stats
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.linear_model import Lasso, LogisticRegression

from groundscope.errors import (
    InputError,
    PrerequisiteError,
    UnknownNameError,
    check_count,
    is_finite,
)
from groundscope.learn.labels import Labels
from groundscope.learn.probe import check_matrix, check_regression, fit_logged

_log = logging.getLogger(__name__)
Floats = npt.NDArray[np.float64]
# Columns that are ranked at a time; all of them would be as much memory again as the features.
_BLOCK = 64


class Selector(SelectorMixin, BaseEstimator):  # type: ignore[misc]
    """What the selectors share.

    Attributes:
        mask_: Which columns are kept, (feature,).
        merits_: How close each column came, (feature,); minus infinity for one that does not vary.
        n_features_in_: Number of columns.
    """

    mask_: Labels
    merits_: Floats
    n_features_in_: int

    def fit(self, X: Any, y: Any) -> Selector:
        """Choose columns.

        Args:
            X: (unit, feature) finite values.
            y: (unit,) labels, 1 is hallucinated.

        Raises:
            InputError: If they do not fit together, there is one class only, or no column varies.
        """
        features, labels = check_matrix(type(self).__name__, X, y)
        varies = np.ptp(features, axis=0) > 0
        if not varies.any():
            raise InputError(f"{type(self).__name__} needs a column that varies. All {len(varies)} are constant.")
        mask, merits = self._choose(features, labels)
        mask, merits = mask & varies, np.where(varies, merits, -np.inf)
        if not mask.any():
            _log.warning("%s found no column that passes; it keeps the one that comes closest.", type(self).__name__)
            mask[np.argmax(merits)] = True
        self.mask_, self.merits_, self.n_features_in_ = mask, merits, features.shape[1]
        return self

    @abstractmethod
    def _choose(self, features: Floats, labels: Labels) -> tuple[Labels, Floats]:
        """Return which columns pass, and a finite merit for each."""

    def _get_support_mask(self) -> Labels:
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "mask_")
        return self.mask_


class _CorrelationSelector(Selector):
    """Keeps the columns with the strongest correlation with the label, whichever its sign.

    Args:
        fraction: The share of all columns that is kept at most, in (0, 1], at least one; or ``auto``: those
            with more than half the strongest correlation.
        p_value: A column must have a two-sided p-value below this, in (0, 1]. Overlapping windows are no
            independent observations, so this is a filter, not a test.
    """

    def __init__(self, fraction: float | Literal["auto"] = 1.0, p_value: float = 0.001) -> None:
        if fraction != "auto":
            _check_portion(type(self).__name__, "fraction", fraction, " or 'auto'")
        _check_portion(type(self).__name__, "p_value", p_value)
        self.fraction = fraction
        self.p_value = p_value

    @abstractmethod
    def _prepared(self, block: Floats) -> Floats:
        """Return what is correlated with the label."""

    def _choose(self, features: Floats, labels: Labels) -> tuple[Labels, Floats]:
        units, columns = features.shape
        target = labels - labels.mean()
        rho = np.empty(columns)
        for start in range(0, columns, _BLOCK):
            block = self._prepared(features[:, start : start + _BLOCK])
            block = block - block.mean(axis=0)
            norms = np.linalg.norm(block, axis=0) * np.linalg.norm(target)
            rho[start : start + _BLOCK] = np.divide(target @ block, norms, out=np.zeros(len(norms)), where=norms > 0)
        strength = np.clip(np.abs(rho), 0, 1)
        freedom = max(units - 2, 1)
        with np.errstate(divide="ignore"):
            p = 2 * stats.t.sf(strength * np.sqrt(freedom / (1 - strength**2)), freedom)
        passes = p < self.p_value
        if self.fraction == "auto":
            return passes & (strength > strength.max() / 2), strength
        order = np.argsort(-np.where(passes, strength, -1), kind="stable")
        mask = np.zeros(columns, dtype=np.bool_)
        mask[order[: max(1, int(self.fraction * columns))]] = True
        return mask & passes, strength


class SpearmanSelector(_CorrelationSelector):
    """Keeps the columns with the strongest rank correlation with the label; the authors' advice for ``sum``.

    The thesis ranks by the signed coefficient, but reports shares of kept heads that only its size explains;
    the size is used here.

    Args:
        fraction: The share of all columns that is kept at most, in (0, 1], at least one; or ``auto``: those
            with more than half the strongest correlation.
        p_value: A column must have a two-sided p-value below this, in (0, 1].

    Raises:
        InputError: If a parameter is out of range.
    """

    def _prepared(self, block: Floats) -> Floats:
        ranks: Floats = stats.rankdata(block, axis=0)
        return ranks


class PointBiserialSelector(_CorrelationSelector):
    """Keeps the columns with the strongest linear correlation with the label.

    Args:
        fraction: See :class:`SpearmanSelector`; likewise the rest.
        p_value: A column must have a two-sided p-value below this, in (0, 1].

    Raises:
        InputError: If a parameter is out of range.
    """

    def _prepared(self, block: Floats) -> Floats:
        return block


class LassoSelector(Selector):
    """Keeps the columns to which an L1-penalised regression gives a weight.

    The paper states neither the kind of regression nor its penalty. This is the lasso proper: least squares on
    the label. Unlike L1 logistic regression it needs one small Gram matrix however many windows there are. The
    penalty is a share of the smallest one that silences all columns, so it does not depend on the scale of the
    features as a whole.

    Args:
        strength: That share, in (0, 1]; smaller keeps more.
        max_iter: Sweeps after which the optimiser gives up.

    Raises:
        InputError: If a parameter is out of range.
    """

    def __init__(self, strength: float = 0.01, max_iter: int = 10000) -> None:
        _check_portion("LassoSelector", "strength", strength)
        check_count("LassoSelector", "max_iter", max_iter)
        self.strength = strength
        self.max_iter = max_iter

    def _choose(self, features: Floats, labels: Labels) -> tuple[Labels, Floats]:
        centred = features - features.mean(axis=0)
        target = labels - labels.mean()
        pull = np.abs(target @ centred) / len(target)
        if pull.max() == 0:
            return np.zeros(len(pull), dtype=np.bool_), pull
        gram = centred.T @ centred
        lasso = Lasso(
            alpha=self.strength * float(pull.max()), fit_intercept=False, precompute=gram, max_iter=self.max_iter
        )
        fit_logged(lasso, centred, target)
        weights = np.asarray(lasso.coef_)
        return weights != 0, np.abs(weights)


class CenterSelector(Selector):
    """Keeps the columns whose class medians differ most in ratio: as many of the highest as of the lowest.

    The ratio is the median of hallucinated over that of faithful units. A zero below makes it infinite with
    the sign of what is above, and 1 if both are zero; the paper does not say.

    Args:
        fraction: The share r of columns to keep, in (0, 1]: floor(r/2 * columns) on either side, at least one.

    Raises:
        InputError: If ``fraction`` is out of range.
    """

    def __init__(self, fraction: float = 0.2) -> None:
        _check_portion("CenterSelector", "fraction", fraction)
        self.fraction = fraction

    def _choose(self, features: Floats, labels: Labels) -> tuple[Labels, Floats]:
        above, below = np.median(features[labels], axis=0), np.median(features[~labels], axis=0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = above / (below + 0.0)  # adding 0 makes a negative zero positive
        ratio[(above == 0) & (below == 0)] = 1
        # Constant columns stand aside: they must not take the place of others on either side.
        live = np.flatnonzero(np.ptp(features, axis=0) > 0)
        order = live[np.argsort(ratio[live], kind="stable")]
        side = max(1, int(self.fraction / 2 * features.shape[1]))
        mask = np.zeros(features.shape[1], dtype=np.bool_)
        mask[order[:side]] = mask[order[-side:]] = True
        return mask, np.zeros(features.shape[1])


class RandomSelector(Selector):
    """Keeps the columns that matter more to a logistic regression than random numbers do.

    In each of n rounds a column of uniform random numbers in [0, 1) is added and the regression fitted; a
    column is marked if the size of its weight exceeds that of the random column's. Kept is what was marked at
    least k times. Scale the features to [0, 1] first; weights of other scales do not compare.

    Args:
        n: Rounds, at least 1.
        k: Marks needed, in 1 to n.
        seed: Seed of the random numbers.
        C: Inverse strength of the regression's L2 penalty.
        class_weight: ``balanced`` or ``None``.
        max_iter: Steps after which the optimiser gives up.

    Raises:
        InputError: If a parameter is out of range.
    """

    def __init__(
        self,
        n: int = 3,
        k: int = 3,
        seed: int = 0,
        C: float = 0.01,
        class_weight: str | None = "balanced",
        max_iter: int = 10000,
    ) -> None:
        owner = type(self).__name__
        check_count(owner, "n", n)
        check_count(owner, "k", k)
        if k > n:
            raise InputError(f"The 'k' parameter of {owner} must be at most n={n}. Got {k!r} instead.")
        _check_seed(owner, seed)
        check_regression(owner, C, class_weight, max_iter)
        self.n = n
        self.k = k
        self.seed = seed
        self.C = C
        self.class_weight = class_weight
        self.max_iter = max_iter

    def _choose(self, features: Floats, labels: Labels) -> tuple[Labels, Floats]:
        rng = np.random.default_rng(self.seed)
        marks = np.zeros(features.shape[1], dtype=np.int64)
        margins = np.zeros(features.shape[1])
        for _ in range(self.n):
            wider = np.column_stack([features, rng.random(len(features))])
            regression = LogisticRegression(C=self.C, class_weight=self.class_weight, max_iter=self.max_iter)
            fit_logged(regression, wider, labels)
            weights = self._weights(regression.coef_[0])
            marks += weights[:-1] > max(weights[-1], 0)
            margins += weights[:-1] - weights[-1]
        return marks >= self.k, margins

    def _weights(self, weights: Floats) -> Floats:
        return np.abs(weights)


class RandomPlusSelector(RandomSelector):
    """Like :class:`RandomSelector` for weights towards hallucination only: marked if positive and above random.

    Args:
        n: See :class:`RandomSelector`; likewise the rest.
        k: Marks needed, in 1 to n.
        seed: Seed of the random numbers.
        C: Inverse strength of the regression's L2 penalty.
        class_weight: ``balanced`` or ``None``.
        max_iter: Steps after which the optimiser gives up.

    Raises:
        InputError: If a parameter is out of range.
    """

    def _weights(self, weights: Floats) -> Floats:
        return weights


class BorutaSelector(Selector):
    """Keeps the columns that a random forest finds more useful than shuffled copies of all; needs ``boruta``.

    Args:
        max_iter: Rounds after which undecided columns are dropped.
        max_depth: Depth of the trees; the package's authors recommend 3 to 7.
        seed: Seed of forest and shuffling.

    Raises:
        InputError: If a parameter is out of range.
        PrerequisiteError: On fitting, if the package is missing.
    """

    def __init__(self, max_iter: int = 100, max_depth: int = 5, seed: int = 0) -> None:
        check_count("BorutaSelector", "max_iter", max_iter)
        check_count("BorutaSelector", "max_depth", max_depth)
        _check_seed("BorutaSelector", seed)
        self.max_iter = max_iter
        self.max_depth = max_depth
        self.seed = seed

    def _choose(self, features: Floats, labels: Labels) -> tuple[Labels, Floats]:
        try:
            from boruta import BorutaPy
        except ImportError as exc:
            raise PrerequisiteError(
                "The selector 'boruta' needs the package boruta. Install it: pip install 'groundscope[boruta]'"
            ) from exc
        from sklearn.ensemble import RandomForestClassifier

        forest = RandomForestClassifier(class_weight="balanced", max_depth=self.max_depth)
        search = BorutaPy(forest, n_estimators="auto", max_iter=self.max_iter, random_state=self.seed % 2**32)
        search.fit(features, labels.astype(np.int64))
        return np.asarray(search.support_, dtype=np.bool_), -np.asarray(search.ranking_, dtype=np.float64)


SELECTORS: dict[str, Callable[..., Selector]] = {
    "spearman": SpearmanSelector,
    "point-biserial": PointBiserialSelector,
    "lasso": LassoSelector,
    "center": CenterSelector,
    "random": RandomSelector,
    "random-plus": RandomPlusSelector,
    "boruta": BorutaSelector,
}


def selector_from_name(name: str, **params: Any) -> Selector:
    """Return a selector by name.

    Args:
        name: Its name in :data:`SELECTORS`.
        **params: Its constructor's arguments.

    Raises:
        UnknownNameError: If there is none of that name.
        InputError: If a parameter is unknown or out of range.
    """
    if not isinstance(name, str) or name not in SELECTORS:
        raise UnknownNameError("selector", name, SELECTORS)
    try:
        return SELECTORS[name](**params)
    except TypeError as exc:
        raise InputError(f"The selector {name!r} cannot be made with {params!r}: {exc}.") from exc


def _check_portion(owner: str, name: str, given: Any, also: str = "") -> None:
    if not is_finite(given) or not 0 < given <= 1:
        raise InputError(f"The {name!r} parameter of {owner} must be a number in (0, 1]{also}. Got {given!r} instead.")


def _check_seed(owner: str, given: Any) -> None:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 2**32:
        raise InputError(f"The 'seed' parameter of {owner} must be an integer in [0, 2**32). Got {given!r} instead.")
