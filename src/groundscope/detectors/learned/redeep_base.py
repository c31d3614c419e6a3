"""What token and chunk level of ReDeEP share: how the balance is learnt, chosen, stored and applied."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from groundscope.detectors.base import Scores
from groundscope.detectors.learnable import Arrays, LearnedDetector
from groundscope.errors import InputError, check_choice, check_count, is_finite
from groundscope.learn.balance import Balance, Grid, Ranking, Reduction, Side, Units, Variant, Weighting
from groundscope.learn.labels import Labels, check_both_classes, has_token_labels, response_label
from groundscope.learn.windows import Floats
from groundscope.trace.trace import Trace
from groundscope.trace.traced import Traced, TracedExample

Heads = Sequence[tuple[int, int]]
# Share of the sources that is held out for choices where no examples for them are given.
_HELD_OUT = 0.2
_DRAWS = 50


class ReDeEP(LearnedDetector):
    """Parametric knowledge minus beta times external context, over chosen layers and heads.

    Attributes:
        heads_: The heads that count, (layer, head), best first; layers count all layers of the model.
        layers_: The layers that count, best first.
        beta_: The weight of the context.
        balance_: What scores units.
        level_: What was learnt from: ``token``, ``chunk`` or ``response``.
        chosen_on_: Where numbers and weight were chosen: ``dev``, ``held-out part``, ``same examples``, or
            ``given`` where all three are parameters.
        shape_: Layers with attention, heads in each, and all layers; ``None`` if an older version saved it.
        extremes_: Smallest and largest score of a unit of the examples that it learnt from; ``None`` if they are one,
            or an older version saved it.
    """

    unit: ClassVar[str]

    candidates: Any
    heads: int | None
    layers: int | None
    beta: float | None
    weighting: Weighting
    variant: Variant
    max_heads: int
    max_layers: int
    max_beta: float
    seed: int

    heads_: tuple[tuple[int, int], ...]
    layers_: tuple[int, ...]
    beta_: float
    balance_: Balance
    level_: str
    chosen_on_: str
    shape_: tuple[int, int, int] | None
    extremes_: tuple[float, float] | None

    def __init__(
        self,
        candidates: str | Heads = "all",
        heads: int | None = None,
        layers: int | None = None,
        beta: float | None = None,
        weighting: Weighting = "equal",
        variant: Variant = "paper",
        max_heads: int = 32,
        max_layers: int = 32,
        max_beta: float = 1.9,
        seed: int = 0,
    ) -> None:
        _check_parameters(
            type(self).__name__,
            candidates, heads, layers, beta, weighting, variant, max_heads, max_layers, max_beta, seed,
        )  # fmt: skip
        self.candidates = candidates
        self.heads = heads
        self.layers = layers
        self.beta = beta
        self.weighting = weighting
        self.variant = variant
        self.max_heads = max_heads
        self.max_layers = max_layers
        self.max_beta = max_beta
        self.seed = seed

    @abstractmethod
    def _features(self, trace: Trace) -> tuple[Floats, Floats]:
        """Return (unit, head) external context scores, layer after layer, and (unit, layer) knowledge scores."""

    @abstractmethod
    def _unit_labels(self, item: TracedExample) -> Labels:
        """Return (unit,) labels of an example whose tokens are labelled."""

    @property
    def _reduction(self) -> Reduction:
        return "mean"

    def check_model(self, layers: int, attention_layers: Sequence[int], heads: int) -> None:
        """Refuse candidates that are no heads of the model, and more heads or layers than there are to choose from."""
        columns = _candidate_columns(type(self).__name__, self.candidates, tuple(attention_layers), heads)
        self._check_numbers(len(columns), layers)

    def _check_numbers(self, head_limit: int, layer_limit: int) -> None:
        for name, wanted, limit in (("heads", self.heads, head_limit), ("layers", self.layers, layer_limit)):
            if wanted is not None and wanted > limit:
                raise InputError(
                    f"The {name!r} parameter of {type(self).__name__} must be at most {limit}, the number of "
                    f"candidates. Got {wanted} instead."
                )

    def _fit(self, data: Traced, dev: Traced | None) -> None:
        first = data[0].trace
        places = first.attention_layers or tuple(range(first[self._context_signal].shape[1]))
        per_layer = first[self._context_signal].shape[2]
        columns = _candidate_columns(type(self).__name__, self.candidates, places, per_layer)
        learn, choose, self.chosen_on_ = self._parts(list(data), dev)
        ranking, self.level_ = self._ranked(learn, columns)
        heads, layers, beta = self._chosen(ranking, choose)
        self.balance_ = ranking.balance(heads, layers, beta)
        self.beta_ = beta
        self.heads_ = tuple((places[i // per_layer], int(i % per_layer)) for i in self.balance_.external.columns)
        self.layers_ = tuple(int(i) for i in self.balance_.knowledge.columns)
        self.shape_ = (len(places), per_layer, ranking.units.knowledge.shape[1])
        scores = np.concatenate([self.balance_(*self._features(item.trace)) for item in data])
        low, high = float(scores.min()), float(scores.max())
        self.extremes_ = (low, high) if low < high else None

    def _parts(self, data: Sequence[TracedExample], dev: Traced | None) -> tuple[Sequence[TracedExample], Traced, str]:
        """What is learnt from, what is chosen on (nothing where nothing is to be chosen), and the latter in words."""
        if self.heads is not None and self.layers is not None and self.beta is not None:
            return data, (), "given"
        if self.variant == "official":
            return data, data, "same examples"
        if dev is not None:
            return data, dev, "dev"
        return *_hold_out(self.name, data, self.seed), "held-out part"

    @property
    def _context_signal(self) -> str:
        return self.signals[0]

    def _units(self, data: Traced) -> Units:
        return Units.joined([self._features(item.trace) for item in data])

    def _ranked(self, data: Traced, columns: npt.NDArray[np.int64]) -> tuple[Ranking, str]:
        """Rank heads and layers; by units if all of them are labelled, else by the means of responses."""
        units = self._units(data)
        fine = all(has_token_labels(item.example) for item in data)
        labelled = units if fine else units.means()
        labels = np.concatenate([self._unit_labels(item) for item in data]) if fine else _response_labels(data)
        check_both_classes(self.name, labels, self.unit if fine else "response")
        ranking = Ranking.of(units, labels, columns, self.variant, self.weighting, labelled=labelled)
        return ranking, self.unit if fine else "response"

    def _chosen(self, ranking: Ranking, choose: Traced) -> tuple[int, int, float]:
        head_limit, layer_limit = len(ranking.heads), len(ranking.layers)
        self._check_numbers(head_limit, layer_limit)
        steps = round(self.max_beta * 10)
        grid = Grid(
            (self.heads,) if self.heads else tuple(range(1, min(self.max_heads, head_limit) + 1)),
            (self.layers,) if self.layers else tuple(range(1, min(self.max_layers, layer_limit) + 1)),
            tuple(step / 10 for step in range(1, steps + 1)) if self.beta is None else (float(self.beta),),
        )
        if not choose:
            return grid.heads[0], grid.layers[0], grid.betas[0]
        labels = _response_labels(choose)
        check_both_classes(self.name, labels, "response")
        return ranking.choose(grid, self._units(choose), labels, self._reduction)

    def _unit_scores(self, trace: Trace) -> Scores:
        self.check_fitted()
        external, knowledge = self._features(trace)
        needed = int(self.balance_.external.columns.max()), int(self.balance_.knowledge.columns.max())
        if needed[0] >= external.shape[1] or needed[1] >= knowledge.shape[1]:
            raise InputError(
                f"{self.name} was fitted on a model with more heads or layers. Got a trace of {external.shape[1]} "
                f"heads and {knowledge.shape[1]} layers; fit it on this model."
            )
        return self.balance_(external, knowledge)

    def head_weights(self) -> Scores | None:
        """Return the (layer, head) weights of scaled external context scores, 0 for heads that do not count.

        They are negative, since context speaks against hallucination. Rows are the layers with attention.
        """
        if self.shape_ is None:
            return None
        rows, per_layer, _ = self.shape_
        weights = np.zeros(rows * per_layer)
        weights[self.balance_.external.columns] = -self.beta_ * self.balance_.external.weights
        return weights.reshape(rows, per_layer)

    def layer_weights(self) -> Scores | None:
        """Return the (layer,) weights of scaled parametric knowledge scores, 0 for layers that do not count."""
        if self.shape_ is None:
            return None
        weights = np.zeros(self.shape_[2])
        weights[self.balance_.knowledge.columns] = self.balance_.knowledge.weights
        return weights

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return columns, weights, minima and spans of both sides; heads, layers, beta and how they were found."""
        self.check_fitted()
        arrays = {**self.balance_.external.to_arrays("external"), **self.balance_.knowledge.to_arrays("knowledge")}
        facts = {
            "heads": [list(head) for head in self.heads_],
            "layers": list(self.layers_),
            "beta": self.beta_,
            "level": self.level_,
            "chosen_on": self.chosen_on_,
            "shape": None if self.shape_ is None else list(self.shape_),
            "extremes": None if self.extremes_ is None else list(self.extremes_),
        }
        return arrays, facts

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` returned."""
        self.beta_ = float(facts["beta"])
        self.balance_ = Balance(Side.from_arrays("external", arrays), Side.from_arrays("knowledge", arrays), self.beta_)
        self.heads_ = tuple((int(layer), int(head)) for layer, head in facts["heads"])
        self.layers_ = tuple(int(layer) for layer in facts["layers"])
        self.level_ = str(facts["level"])
        self.chosen_on_ = str(facts["chosen_on"])
        shape = facts.get("shape")
        self.shape_ = None if shape is None else (int(shape[0]), int(shape[1]), int(shape[2]))
        extremes = facts.get("extremes")
        self.extremes_ = None if extremes is None else (float(extremes[0]), float(extremes[1]))


def _check_parameters(
    owner: str,
    candidates: object,
    heads: object,
    layers: object,
    beta: object,
    weighting: object,
    variant: object,
    max_heads: object,
    max_layers: object,
    max_beta: object,
    seed: object,
) -> None:
    """Refuse parameters that neither level can work with.

    Raises:
        InputError: If one has the wrong type or range.
    """
    if candidates != "all":
        _checked_heads(owner, candidates)
    for name, value in (("heads", heads), ("layers", layers)):
        if value is not None:
            check_count(owner, name, value)
    if beta is not None and (not is_finite(beta) or float(beta) < 0):  # type: ignore[arg-type]
        raise InputError(f"The 'beta' parameter of {owner} must be a float of at least 0. Got {beta!r} instead.")
    check_choice(owner, "weighting", weighting, ("equal", "correlation"))
    check_choice(owner, "variant", variant, ("paper", "official"))
    if variant == "official" and weighting != "equal":
        raise InputError(
            f"The 'weighting' parameter of {owner} must be 'equal' with variant='official', which sums. "
            f"Got {weighting!r} instead."
        )
    check_count(owner, "max_heads", max_heads)
    check_count(owner, "max_layers", max_layers)
    if not is_finite(max_beta) or not 0.1 <= float(max_beta) <= 10:  # type: ignore[arg-type]
        raise InputError(
            f"The 'max_beta' parameter of {owner} must be a float in the range [0.1, 10]. Got {max_beta!r} instead."
        )
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InputError(f"The 'seed' parameter of {owner} must be an integer of at least 0. Got {seed!r} instead.")


def _checked_heads(owner: str, candidates: object) -> list[tuple[int, int]]:
    wanted = f"The 'candidates' parameter of {owner} must be 'all' or a list of (layer, head), each once."
    if isinstance(candidates, (str, bytes)) or not isinstance(candidates, Sequence) or not len(candidates):
        raise InputError(f"{wanted} Got {candidates!r} instead.")
    pairs = []
    for item in candidates:
        numbers = tuple(item) if isinstance(item, Sequence) and not isinstance(item, (str, bytes)) else ()
        if len(numbers) != 2 or any(isinstance(i, bool) or not isinstance(i, int) or i < 0 for i in numbers):
            raise InputError(f"{wanted} Got {item!r} among them.")
        pairs.append((numbers[0], numbers[1]))
    if len(set(pairs)) != len(pairs):
        raise InputError(f"{wanted} Got {next(pair for pair in pairs if pairs.count(pair) > 1)} twice.")
    return pairs


def _candidate_columns(
    owner: str, candidates: object, places: tuple[int, ...], per_layer: int
) -> npt.NDArray[np.int64]:
    """Columns of the candidate heads where heads stand layer after layer."""
    if candidates == "all":
        return np.arange(len(places) * per_layer)
    columns = []
    for layer, head in _checked_heads(owner, candidates):
        if layer not in places or head >= per_layer:
            raise InputError(
                f"The 'candidates' parameter of {owner} must name heads of the model, which has {per_layer} heads in "
                f"each of the layers {places[0]} to {places[-1]} with attention. Got {(layer, head)} among them."
            )
        columns.append(places.index(layer) * per_layer + head)
    # In order of layer and head, so that equals do not depend on how the list was written.
    return np.array(sorted(columns), dtype=np.int64)


def _response_labels(data: Traced) -> Labels:
    return np.array([response_label(item.example) for item in data], dtype=np.bool_)


def _hold_out(name: str, data: Sequence[TracedExample], seed: int) -> tuple[list[TracedExample], list[TracedExample]]:
    """Split off a part of the sources, both classes on either side.

    Raises:
        InputError: If no such split is found.
    """
    groups = sorted({item.group for item in data})
    count = max(1, round(_HELD_OUT * len(groups)))
    generator = np.random.default_rng(seed)
    for _ in range(_DRAWS):
        held = {groups[i] for i in generator.permutation(len(groups))[:count]}
        parts = [item for item in data if item.group not in held], [item for item in data if item.group in held]
        if all(0 < np.count_nonzero(_response_labels(part)) < len(part) for part in parts if part) and parts[0]:
            return parts
    raise InputError(
        f"{name} chooses the number of heads and layers and the weight on examples that it does not learn from, and "
        f"found none to hold out: {len(data)} examples of {len(groups)} sources leave no two parts with both classes. "
        "Pass dev=, give more examples, or set heads, layers and beta."
    )
