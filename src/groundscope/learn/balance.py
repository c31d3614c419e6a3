"""Knowledge against context: which layers and heads count, how they are scaled, how they are weighed (ReDeEP).

A unit (a token or a chunk) gets z = P - beta * E. P is made of the parametric knowledge scores of the first K
layers in order of their relation to the label, E of the external context scores of the first N heads. All is
affine in the features, so the mean of z over units is z of the mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from groundscope.learn.labels import Labels
from groundscope.learn.windows import Floats

Variant = Literal["paper", "official"]
Weighting = Literal["equal", "correlation"]
Reduction = Literal["mean", "max"]
Columns = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Units:
    """The units of some responses, response after response.

    Attributes:
        external: (unit, head) external context scores.
        knowledge: (unit, layer) parametric knowledge scores.
        starts: (response,) the first unit of each response; none is without a unit.
    """

    external: Floats
    knowledge: Floats
    starts: Columns

    @classmethod
    def joined(cls, parts: Sequence[tuple[Floats, Floats]]) -> Units:
        """Put the (external, knowledge) arrays of several responses together."""
        lengths = [len(external) for external, _ in parts]
        return cls(
            np.concatenate([external for external, _ in parts]),
            np.concatenate([knowledge for _, knowledge in parts]),
            np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64),
        )

    def means(self) -> Units:
        """Return one unit per response: the mean of its units."""
        return Units(
            reduce_units(self.external, self.starts, "mean"),
            reduce_units(self.knowledge, self.starts, "mean"),
            np.arange(len(self.starts)),
        )


@dataclass(frozen=True, eq=False)
class Side:
    """One side of the balance: the sum over some columns of weight * (value - low) / span.

    Attributes:
        columns: (k,) the columns that count, best first.
        weights: (k,) their weights.
        low: (k,) what is taken off each column.
        span: (k,) what it is divided by.
    """

    columns: Columns
    weights: Floats
    low: Floats
    span: Floats

    def __call__(self, values: npt.NDArray[np.floating]) -> Floats:
        """Return (unit,) of (unit, column) values; not clipped, so values beyond those learnt from keep their order."""
        scaled: Floats = (values[:, self.columns].astype(np.float64) - self.low) / self.span
        out: Floats = scaled @ self.weights
        return out

    def to_arrays(self, prefix: str) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays by name."""
        return {f"{prefix}_{name}": getattr(self, name) for name in ("columns", "weights", "low", "span")}

    @classmethod
    def from_arrays(cls, prefix: str, arrays: Mapping[str, npt.NDArray[Any]]) -> Side:
        """Take over what :meth:`to_arrays` returned."""
        columns = np.asarray(arrays[f"{prefix}_columns"], dtype=np.int64)
        weights, low, span = (
            np.asarray(arrays[f"{prefix}_{name}"], dtype=np.float64) for name in ("weights", "low", "span")
        )
        return cls(columns, weights, low, span)


@dataclass(frozen=True, eq=False)
class Balance:
    """What a unit's score is made of: ``knowledge(P) - beta * external(E)``."""

    external: Side
    knowledge: Side
    beta: float

    def __call__(self, external: npt.NDArray[np.floating], knowledge: npt.NDArray[np.floating]) -> Floats:
        """Return (unit,) scores, higher = more likely hallucinated."""
        return self.knowledge(knowledge) - self.beta * self.external(external)


def reduce_units(values: Floats, starts: Columns, reduction: Reduction) -> Floats:
    """Reduce (unit, ...) values to (response, ...) by mean or maximum."""
    if reduction == "max":
        highest: Floats = np.maximum.reduceat(values, starts, axis=0)
        return highest
    lengths = np.diff(np.append(starts, len(values))).reshape(-1, *[1] * (values.ndim - 1))
    means: Floats = np.add.reduceat(values, starts, axis=0, dtype=np.float64) / lengths
    return means


def correlations(values: Floats, labels: Labels) -> Floats:
    """Return Pearson's correlation of each column with the labels, (column,); 0 for a constant column."""
    centred = values - values.mean(axis=0)
    target = labels.astype(np.float64) - labels.mean()
    size = np.sqrt(np.square(centred).sum(axis=0) * np.square(target).sum())
    # Of a constant column, rounding leaves a trace of a spread.
    constant = np.ptp(values, axis=0) == 0
    out: Floats = np.where(constant, 0.0, target @ centred / np.where(constant, 1.0, size))
    return out


def areas(values: Floats, labels: Labels) -> Floats:
    """Return the area under the ROC curve of each column, (column,), ties counting half."""
    from scipy.stats import rankdata

    ranks = rankdata(values, axis=0)
    positives = int(np.count_nonzero(labels))
    above = ranks[labels].sum(axis=0) - positives * (positives + 1) / 2
    out: Floats = above / (positives * (len(labels) - positives))
    return out


def relations(values: Floats, labels: Labels, variant: Variant) -> Floats:
    """Return how strongly each column goes with the label: correlation ('paper'), or AUROC - 0.5 ('official')."""
    return correlations(values, labels) if variant == "paper" else areas(values, labels) - 0.5


def side_of(values: Floats, order: Columns, strength: Floats, variant: Variant, weighting: Weighting) -> Side:
    """Fit one side on (unit, column) values.

    Paper: each column min-max scaled, then the weighted mean. Official: the plain sum, min-max scaled.

    Args:
        values: What minima and maxima are taken from.
        order: The columns that count, best first.
        strength: (column,) relation with the label, in the direction that this side expects.
        variant: Which arithmetic.
        weighting: Weight columns equally, or by strength where it is positive.
    """
    chosen = values[:, order]
    if variant == "official":
        total = chosen.sum(axis=1)
        low, span = float(total.min()), float(np.ptp(total))
        count = len(order)
        return Side(order, np.ones(count), np.full(count, low / count), np.full(count, span or 1.0))
    low, span = chosen.min(axis=0), np.ptp(chosen, axis=0)
    weights = np.maximum(strength[order], 0.0) if weighting == "correlation" else np.ones(len(order))
    weights = weights if weights.sum() > 0 else np.ones(len(order))
    return Side(order, weights / weights.sum(), low, np.where(span > 0, span, 1.0))


@dataclass(frozen=True)
class Grid:
    """What may be chosen: numbers of heads and of layers, weights of the context."""

    heads: tuple[int, ...]
    layers: tuple[int, ...]
    betas: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Ranking:
    """Heads and layers in order of their relation to the label, and what sides are fitted on.

    Attributes:
        units: What minima and maxima are taken from.
        heads: Columns of ``units.external``, best first.
        layers: Columns of ``units.knowledge``, best first.
        context: (head,) minus the relation of each head with the label.
        memory: (layer,) the relation of each layer with the label.
    """

    units: Units
    heads: Columns
    layers: Columns
    context: Floats
    memory: Floats
    variant: Variant
    weighting: Weighting

    @classmethod
    def of(
        cls,
        units: Units,
        labels: Labels,
        candidates: Columns,
        variant: Variant,
        weighting: Weighting,
        *,
        labelled: Units | None = None,
    ) -> Ranking:
        """Rank by the labels.

        Args:
            units: What minima and maxima are taken from.
            labels: One label per unit of ``labelled``.
            candidates: Heads that may be chosen.
            variant: Rank by correlation ('paper') or AUROC ('official').
            weighting: See :func:`side_of`.
            labelled: What the labels belong to, if not to ``units``.
        """
        source = units if labelled is None else labelled
        context = -relations(source.external, labels, variant)
        memory = relations(source.knowledge, labels, variant)
        heads = candidates[np.argsort(-context[candidates], kind="stable")]
        layers = np.argsort(-memory, kind="stable").astype(np.int64)
        return cls(units, heads, layers, context, memory, variant, weighting)

    def balance(self, heads: int, layers: int, beta: float) -> Balance:
        """Return the balance of the first so many heads and layers."""
        return Balance(self.external(heads), self.knowledge(layers), float(beta))

    def external(self, count: int) -> Side:
        """Return the side of the first so many heads."""
        return side_of(self.units.external, self.heads[:count], self.context, self.variant, self.weighting)

    def knowledge(self, count: int) -> Side:
        """Return the side of the first so many layers."""
        return side_of(self.units.knowledge, self.layers[:count], self.memory, self.variant, self.weighting)

    def choose(self, grid: Grid, units: Units, labels: Labels, reduction: Reduction = "mean") -> tuple[int, int, float]:
        """Return the number of heads, of layers and the weight with the highest AUROC of response scores.

        Equals go to fewer heads, then fewer layers, then less weight.

        Args:
            grid: What may be chosen.
            units: Units to choose on.
            labels: (response,) labels, both classes among them.
            reduction: How the scores of units become that of a response.
        """
        if reduction == "mean":
            units = units.means()
        external = {count: self.external(count)(units.external)[:, None] for count in grid.heads}
        knowledge = {count: self.knowledge(count)(units.knowledge)[:, None] for count in grid.layers}
        betas = np.asarray(grid.betas)
        best, chosen = -1.0, (grid.heads[0], grid.layers[0], float(betas[0]))
        for heads, context in external.items():
            for layers, memory in knowledge.items():
                scores = reduce_units(memory - betas * context, units.starts, reduction)
                found = areas(scores, labels)
                index = int(found.argmax())
                if found[index] > best + 1e-12:
                    best, chosen = float(found[index]), (heads, layers, float(betas[index]))
        return chosen
