"""Probes on the hidden states of one layer: what Lookback Lens and AggTruth compare with, and SAPLMA's form."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from groundscope.detectors.base import Scores
from groundscope.detectors.learnable import Arrays, LearnedDetector
from groundscope.detectors.learned.windowed import WindowedProbe, check_units
from groundscope.errors import InputError, check_count
from groundscope.learn.labels import response_label
from groundscope.learn.probe import LinearProbe, check_matrix, check_regression, fit_logged
from groundscope.trace.signals import hidden_state
from groundscope.trace.trace import Trace
from groundscope.trace.traced import Traced


class HiddenState(WindowedProbe):
    """Balanced logistic regression on the states of one layer, scaled to [0, 1] and averaged over a unit.

    The regression is that of AggTruth, as in that paper's comparison. The papers probe the last layer and
    those 4 and 8 before it; the default layer is the 22nd of the embedded model's 30. For a model of another
    depth choose the layer yourself; one that it lacks is refused before anything is read.

    Args:
        layer: After which decoder layer the states are read, 0-based.
        units: What it learns from: ``window`` (sliding), ``span`` (predefined) or ``response``. The first two
            need labels of spans or sentences. A probe that learnt from spans scores sliding windows.
        window_size: Tokens in a window; a shorter response is one window.
        stride: Tokens from one window to the next, at most ``window_size``.
        C: Inverse strength of the L2 penalty.
        class_weight: ``balanced`` or ``None``.
        max_iter: Steps after which the optimiser gives up.
        pooling: ``mean`` or ``max`` of token scores for the response; not used for ``units='response'``.

    Raises:
        InputError: If a parameter is out of range.
    """

    name = "hidden-state"
    summary = "linear probe on the hidden states of one layer"
    reference = "the comparison in AggTruth, arXiv 2506.18628, and Lookback Lens, arXiv 2407.07071"
    variant = "paper"

    def __init__(
        self,
        layer: int = 21,
        units: str = "window",
        window_size: int = 8,
        stride: int = 1,
        C: float = 0.01,
        class_weight: str | None = "balanced",
        max_iter: int = 10000,
        pooling: str = "mean",
    ) -> None:
        _check_layer("HiddenState", layer)
        check_units("HiddenState", units, window_size, stride, self.variant, pooling)
        check_regression("HiddenState", C, class_weight, max_iter)
        self.layer = layer
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
        return hidden_state(self.layer)

    def _new_probe(self) -> LinearProbe:
        return LinearProbe("minmax", C=self.C, class_weight=self.class_weight, max_iter=self.max_iter)


class Saplma(LearnedDetector):
    """A small network on the state of one layer at the last token: whether the response as a whole is wrong.

    As published: three hidden layers of 256, 128 and 64 rectified units, a sigmoid, Adam, five epochs, one
    layer of the model's middle. States are standardised first, so that one learning rate suits every model.
    The state is that of the row which predicts the last token, as for all hidden-state signals here; the
    paper reads the row of the last token itself. Every token is scored by the network at its own state, but
    only the last one was learnt from, and it alone is the response score.

    Args:
        layer: After which decoder layer the states are read, 0-based; the default is the 15th of the embedded
            model's 30.
        epochs: Passes over the training responses.
        seed: Seed of the initial weights and of the order of responses.

    Raises:
        InputError: If a parameter is out of range.
    """

    name = "saplma"
    summary = "small network on the hidden state of the last token"
    reference = "SAPLMA, arXiv 2304.13734"
    aggregation: ClassVar[str] = "last token"
    neutral: ClassVar[float | None] = 0.5
    weights_: list[npt.NDArray[np.float64]]
    biases_: list[npt.NDArray[np.float64]]

    def __init__(self, layer: int = 14, epochs: int = 5, seed: int = 0) -> None:
        _check_layer("Saplma", layer)
        check_count("Saplma", "epochs", epochs)
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
            raise InputError(f"The 'seed' parameter of Saplma must be an integer in [0, 2**32). Got {seed!r} instead.")
        self.layer = layer
        self.epochs = epochs
        self.seed = seed

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that it reads."""
        return (hidden_state(self.layer),)

    def token_scores(self, trace: Trace) -> Scores:
        """Score every response token: a probability, 0.5 is neutral.

        Raises:
            PrerequisiteError: If it was not fitted.
            InputError: If the trace has another number of channels than it learnt from.
        """
        self.check_fitted()
        states = trace[hidden_state(self.layer)].astype(np.float64)
        if states.shape[1] != len(self.weights_[0]):
            raise InputError(
                f"The detector 'saplma' learnt from {len(self.weights_[0])} channels and this trace has "
                f"{states.shape[1]}. Read with the model that it was trained with, or train it again."
            )
        for weights, bias in zip(self.weights_[:-1], self.biases_[:-1], strict=True):
            states = np.maximum(states @ weights + bias, 0)
        return np.asarray(expit(states @ self.weights_[-1] + self.biases_[-1]), dtype=np.float64)[:, 0]

    def response_score(self, scores: Scores) -> float:
        """Return the last of the (token,) scores that is not NaN."""
        return float(scores[np.isfinite(scores)][-1])

    def _fit(self, data: Traced, dev: Traced | None) -> None:
        from sklearn.neural_network import MLPClassifier

        name = hidden_state(self.layer)
        sizes = {item.trace[name].shape[1] for item in data}
        if len(sizes) > 1:
            raise InputError(f"All traces must have the same channels. Got {sorted(sizes)} instead.")
        last = np.stack([item.trace[name][-1] for item in data])
        states, labels = check_matrix("saplma", last, np.array([response_label(item.example) for item in data]))
        centre, width = states.mean(axis=0), states.std(axis=0)
        width[width == 0] = 1
        network = MLPClassifier((256, 128, 64), batch_size=min(32, len(states)), random_state=self.seed % 2**32)
        network.set_params(max_iter=self.epochs, n_iter_no_change=self.epochs + 1)
        # A fixed number of epochs is the method, not a failure.
        fit_logged(network, (states - centre) / width, labels, level=logging.DEBUG)
        weights = [np.asarray(matrix, dtype=np.float64) for matrix in network.coefs_]
        biases = [np.asarray(vector, dtype=np.float64) for vector in network.intercepts_]
        # The scaling becomes a part of the first layer.
        weights[0] = weights[0] / width[:, None]
        biases[0] = biases[0] - centre @ weights[0]
        self.weights_, self.biases_ = weights, biases

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return what was learnt: weights and biases per layer of the network."""
        self.check_fitted()
        arrays = {f"weights_{index}": matrix for index, matrix in enumerate(self.weights_)}
        arrays |= {f"biases_{index}": vector for index, vector in enumerate(self.biases_)}
        return arrays, {"depth": len(self.weights_)}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` returned.

        Raises:
            InputError: If the layers do not fit together.
        """
        depth = int(facts["depth"])
        weights = [np.asarray(arrays[f"weights_{index}"], dtype=np.float64) for index in range(depth)]
        biases = [np.asarray(arrays[f"biases_{index}"], dtype=np.float64) for index in range(depth)]
        shapes = [matrix.shape for matrix in weights]
        fits = depth > 0 and all(len(shape) == 2 for shape in shapes) and shapes[-1][1] == 1
        fits = fits and all(one[1] == other[0] for one, other in pairwise(shapes))
        if not fits or any(bias.shape != shape[1:] for bias, shape in zip(biases, shapes, strict=True)):
            raise InputError(f"The layers of a network must fit together. Got the shapes {shapes} instead.")
        self.weights_, self.biases_ = weights, biases


def _check_layer(owner: str, layer: object) -> None:
    if isinstance(layer, bool) or not isinstance(layer, int) or not 0 <= layer < 10000:
        raise InputError(f"The 'layer' parameter of {owner} must be an integer of at least 0. Got {layer!r} instead.")
