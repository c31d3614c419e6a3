"""Two groups of token values compared twice: token by token, as published, and by source, as the data allow.

Tokens of one answer, and answers to one context, are alike. A t-test over tokens counts each of them as news, so its
t grows with the length of the answers and not with what was found. Here the same difference gets a standard error by
source (linearised, as in survey statistics), an interval by drawing whole sources, effect sizes that no number of
tokens can inflate, and the design effect: by how much the variance over sources exceeds that over tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from groundscope.errors import InputError
from groundscope.evaluate.metrics.binary import Curve, Floats
from groundscope.evaluate.metrics.bootstrap import Codes, Estimate, Resampler

# Distinct values kept apart when the area under the curve is resampled.
_BINS = 512
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class TokenValues:
    """Values of many tokens and where they come from.

    Attributes:
        values: (token,) finite.
        source: (token,) positions of their sources in ``Resampler.names``.
        responses: Number of responses they belong to.

    Raises:
        InputError: If the arrays do not match or a value is not finite.
    """

    values: Floats
    source: Codes
    responses: int

    def __post_init__(self) -> None:
        if self.values.ndim != 1 or self.values.shape != self.source.shape:
            raise InputError(
                "There must be one source per token value. "
                f"Got values of shape {self.values.shape} and sources of {self.source.shape}."
            )
        if not np.isfinite(self.values).all():
            raise InputError("Token values must be finite to be compared. Got NaN or infinity among them.")


@dataclass(frozen=True)
class SideSummary:
    """One side of a comparison in numbers.

    Attributes:
        tokens: Tokens.
        responses: Responses they belong to.
        sources: Different sources of these.
        mean: Mean over tokens.
        sd: Standard deviation over tokens.
    """

    tokens: int
    responses: int
    sources: int
    mean: float
    sd: float


@dataclass(frozen=True)
class TTest:
    """A one-tailed t-test of "the first side is larger".

    Attributes:
        kind: ``welch``, ``student`` or ``paired`` over tokens; ``clustered`` over sources.
        t: Statistic; ``None`` where nothing varies.
        df: Degrees of freedom.
        p: One-tailed; ``None`` where nothing varies.
    """

    kind: str
    t: float | None
    df: float | None
    p: float | None


@dataclass(frozen=True)
class TokenComparison:
    """The first side against the second.

    Attributes:
        paired: Whether both sides are the same tokens read twice.
        first: The side claimed to be larger.
        second: The other one.
        per_token: The published tests, in which every token counts as independent.
        difference: Mean over tokens, first minus second, with its interval by source.
        clustered: The t-test of the same difference with a standard error by source and as many degrees of freedom
            as the side with fewer sources has, less one; ``None`` with fewer than two sources on a side.
        bootstrap_p: One-tailed, share of resamples of sources in which the difference is not above zero.
        cohen_d: The difference in standard deviations of tokens (of the token differences, if paired).
        auc: Probability that a token of the first side exceeds one of the second.
        design_effect: Variance of the difference by source over its variance by token; ``None`` where either
            cannot be told.
        effective_tokens: Tokens over design effect: how many independent ones tell as much.
    """

    paired: bool
    first: SideSummary
    second: SideSummary
    per_token: tuple[TTest, ...]
    difference: Estimate
    clustered: TTest | None
    bootstrap_p: float | None
    cohen_d: Estimate
    auc: Estimate
    design_effect: float | None
    effective_tokens: float | None


class Compared(NamedTuple):
    """A comparison and its difference in every resample, (resample,)."""

    result: TokenComparison
    draws: Floats


class Linearised(NamedTuple):
    """Differences of two means and their standard errors by source, (column,) each.

    ``df`` is one less than the sources of the side that has fewer.
    """

    difference: Floats
    error: Floats
    df: int


def compare(first: TokenValues, second: TokenValues, resampler: Resampler, *, paired: bool = False) -> Compared:
    """Compare two sides.

    Args:
        first: The side claimed to be larger.
        second: The other one; the same tokens in the same order if ``paired``.
        resampler: Draws the sources of both.
        paired: Whether each token stands on both sides.

    Raises:
        InputError: If a side is empty, or paired sides do not match.
    """
    if not len(first.values) or not len(second.values):
        raise InputError("Two sides with tokens are needed to be compared. Got an empty one.")
    if paired and not np.array_equal(first.source, second.source):
        raise InputError("Paired sides must hold the same tokens in the same order. Got sides that differ.")
    one, other = first.values, second.values
    if paired:
        gap, codes = one - other, first.source
        mask = np.ones(len(gap), dtype=np.bool_)
        tests: tuple[TTest, ...] = (_paired(gap),)
        variance = float(gap.var(ddof=1)) / len(gap) if len(gap) > 1 else 0.0
    else:
        gap, codes = np.concatenate([one, other]), np.concatenate([first.source, second.source])
        mask = np.arange(len(gap)) < len(one)
        tests = (_unpaired("welch", one, other), _unpaired("student", one, other))
        variance = sum(float(x.var(ddof=1)) / len(x) for x in (one, other) if len(x) > 1)
    found = linearised(gap[:, None], mask, codes, paired=paired)
    value, effect, draws, effects = _moments(gap, mask, codes, resampler, paired)
    estimate = _estimate(resampler, value, draws, found.df)
    error = float(found.error[0])
    clustered = _t_test("clustered", value, error, found.df) if found.df >= 1 else None
    design = error**2 / variance if variance > 0 and found.df >= 1 else None
    tokens = len(gap)
    result = TokenComparison(
        paired,
        _summary(first),
        _summary(second),
        tests,
        estimate,
        clustered,
        None if estimate.low is None else _one_tailed(draws),
        _estimate(resampler, effect, effects, found.df),
        _area(first, second, resampler, found.df),
        design,
        None if not design else tokens / design,
    )
    return Compared(result, draws)


def excess(real: Compared, placebo: Compared, resampler: Resampler) -> Estimate:
    """Return by how much a difference exceeds that of its placebo, on the same resamples of sources."""
    one, other = real.result.difference.value, placebo.result.difference.value
    if one is None or other is None or real.result.difference.low is None or placebo.result.difference.low is None:
        return Estimate(None)
    return resampler.estimate(one - other, real.draws - placebo.draws)


def linearised(columns: Floats, first: Mask, codes: Codes, *, paired: bool = False) -> Linearised:
    """Return differences of two means and their standard errors by source.

    Each source's share in the difference is taken to first order (Taylor linearisation of a ratio of sums), and the
    variance is that of the sum of these shares, times G / (G - 1).

    Args:
        columns: (unit, column) values.
        first: (unit,) whether on the first side.
        codes: (unit,) source.
        paired: Whether all units are on the first side and its mean is compared with zero.
    """
    present, index = np.unique(codes, return_inverse=True)
    count = len(present)
    sides = (first,) if paired else (first, ~first)
    means, shares, sources = [], np.zeros((count, columns.shape[1])), []
    for side, sign in zip(sides, (1.0, -1.0), strict=False):
        values = columns[side]
        mean = values.mean(axis=0)
        np.add.at(shares, index[side], sign * (values - mean) / len(values))
        means.append(mean)
        sources.append(len(np.unique(index[side])))
    difference = means[0] if paired else means[0] - means[1]
    correction = count / (count - 1) if count > 1 else float("nan")
    error = np.sqrt(correction * np.square(shares).sum(axis=0))
    return Linearised(difference, error, min(sources) - 1)


def two_sided_p(found: Linearised) -> Floats:
    """Return two-sided p-values of no difference, (column,); NaN where nothing varies."""
    from scipy import stats

    t = np.divide(found.difference, found.error, out=np.full_like(found.error, np.nan), where=found.error > 0)
    p: Floats = 2 * stats.t.sf(np.abs(t), found.df) if found.df >= 1 else np.full_like(t, np.nan)
    return p


def _moments(
    gap: Floats, mask: Mask, codes: Codes, resampler: Resampler, paired: bool
) -> tuple[float, float, Floats, Floats]:
    """Difference and Cohen's d, in the data and in every resample."""
    # Squares of values far from zero would lose their differences; a paired difference must keep its zero.
    centred = gap if paired else gap - gap.mean()
    parts = [mask.astype(np.float64)] if paired else [mask.astype(np.float64), (~mask).astype(np.float64)]
    columns = np.stack([column for part in parts for column in (part, part * centred, part * centred**2)], axis=1)
    drawn = _effects(resampler.sums(codes, columns))
    (value,), (effect,) = _effects(columns.sum(axis=0)[None])
    return float(value), float(effect), *drawn


def _effects(sums: Floats) -> tuple[Floats, Floats]:
    sides = [sums[:, start : start + 3].T for start in range(0, sums.shape[1], 3)]
    with np.errstate(divide="ignore", invalid="ignore"):  # a resample without one of the sides is NaN
        means = [total / count for count, total, _ in sides]
        spread = sum(squares - total * total / count for count, total, squares in sides)
        freedom = sum(count for count, _, _ in sides) - len(sides)
        sd = np.sqrt(np.maximum(spread, 0) / freedom)
        gaps = means[0] if len(means) == 1 else means[0] - means[1]
        effects = np.where(sd > 0, gaps / sd, np.nan)
    return gaps, effects


def _estimate(resampler: Resampler, value: float, draws: Floats, df: int) -> Estimate:
    if df < 1:
        return Estimate(value if np.isfinite(value) else None)
    return resampler.estimate(value, draws)


def _area(first: TokenValues, second: TokenValues, resampler: Resampler, df: int) -> Estimate:
    values = np.concatenate([first.values, second.values])
    codes = np.concatenate([first.source, second.source])
    mask = np.arange(len(values)) < len(first.values)
    area = Curve.of(mask, values).auroc
    if df < 1:
        return Estimate(area)
    return resampler.estimate(area, resampler.ranking(codes, mask, values, _BINS)[0])


def _one_tailed(draws: Floats) -> float | None:
    known = draws[np.isfinite(draws)]
    if known.min() == known.max() == 0:
        return None
    return float((np.count_nonzero(known <= 0) + 1) / (len(known) + 1))


def _unpaired(kind: str, one: Floats, other: Floats) -> TTest:
    from scipy import stats

    if min(len(one), len(other)) < 2 or (one.min() == one.max() and other.min() == other.max()):
        return TTest(kind, None, None, None)
    found = stats.ttest_ind(one, other, equal_var=kind == "student", alternative="greater")
    return TTest(kind, float(found.statistic), float(found.df), float(found.pvalue))


def _paired(gap: Floats) -> TTest:
    from scipy import stats

    if len(gap) < 2 or gap.min() == gap.max():
        return TTest("paired", None, None, None)
    found = stats.ttest_1samp(gap, 0.0, alternative="greater")
    return TTest("paired", float(found.statistic), float(found.df), float(found.pvalue))


def _t_test(kind: str, value: float, error: float, df: int) -> TTest:
    from scipy import stats

    if not error > 0:
        return TTest(kind, None, float(df), None)
    return TTest(kind, value / error, float(df), float(stats.t.sf(value / error, df)))


def _summary(side: TokenValues) -> SideSummary:
    values = side.values
    sd = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return SideSummary(len(values), side.responses, len(np.unique(side.source)), float(values.mean()), sd)
