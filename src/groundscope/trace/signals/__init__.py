"""The signals: what they are called, which axes they have, where they come from."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from groundscope.errors import InputError, UnknownNameError
from groundscope.trace.signals.forms import mmd_form

Axes = Literal["token", "token x layer", "token x layer x head", "token x passage", "token x channel"]
Source = Literal["attention", "lens", "output", "contrast", "layout", "states"]


@dataclass(frozen=True)
class SignalSpec:
    """One named array per response.

    Attributes:
        name: Its name.
        axes: Its axes. ``layer`` counts the layers that have attention for attention signals.
        source: What must be read for it: attention, the residual stream, the output distribution,
            the output distribution under a random document, nothing but the layout, or one layer's states.
        summary: What it measures.
        reference: Paper and equation.
        low: Least value that there can be.
        high: Greatest value that there can be.
    """

    name: str
    axes: Axes
    source: Source
    summary: str
    reference: str
    low: float = -math.inf
    high: float = math.inf


_HEAD: Axes = "token x layer x head"
_AGGTRUTH = "AggTruth, arXiv 2506.18628, section 3.3"
_REDEEP = "ReDeEP, arXiv 2410.11414"
_LUMINA = "LUMINA, arXiv 2509.21875"

_SPECS = (
    SignalSpec(
        "lookback_ratio", _HEAD, "attention",
        "mean attention on the prompt before the header, against that plus the mean on header and new tokens",
        "Lookback Lens, arXiv 2407.07071, eq. 1-3", low=0, high=1,
    ),
    SignalSpec(
        "lookback_ratio_passages", _HEAD, "attention",
        "the same with the passage tokens alone as context", "Lookback Lens, arXiv 2407.07071, eq. 1-3", low=0, high=1,
    ),
    SignalSpec("aggtruth_sum", _HEAD, "attention", "attention mass on the passages", _AGGTRUTH, low=0, high=1),
    SignalSpec(
        "aggtruth_cosine", _HEAD, "attention",
        "mean cosine between a head's passage attention and the other heads' of its layer", _AGGTRUTH, low=0, high=1,
    ),
    SignalSpec(
        "aggtruth_entropy", _HEAD, "attention", "entropy in bits of passage attention and its residual", _AGGTRUTH,
        low=0,
    ),
    SignalSpec(
        "aggtruth_js", _HEAD, "attention",
        "Jensen-Shannon distance (nats) of passage attention and residual to the mean of the layer's heads", _AGGTRUTH,
        low=0, high=math.sqrt(math.log(2)),
    ),
    SignalSpec(
        "external_context_score", _HEAD, "attention",
        "cosine of the mean last state of the most attended tenth of the passage tokens with the token's own",
        f"{_REDEEP}, eq. 2-3", low=-1, high=1,
    ),
    SignalSpec(
        "chunk_context_score", _HEAD, "attention",
        "similarity of the token's response chunk to the passage chunk that it attends to most", f"{_REDEEP}, 4.2",
        low=-1, high=1,
    ),
    SignalSpec("response_chunk", "token", "layout", "number of the token's chunk of the response", "own", low=0),
    SignalSpec(
        "passage_attention", "token x passage", "attention",
        "attention mass per passage, averaged over heads and layers", "own", low=0, high=1,
    ),
    SignalSpec(
        "parametric_knowledge_score", "token x layer", "lens",
        "Jensen-Shannon divergence (nats) of the lens before and after the feed-forward block", f"{_REDEEP}, eq. 5",
        low=0, high=math.log(2),
    ),
    SignalSpec(
        "lens_entropy", "token x layer", "lens", "entropy (nats) of the lens after each layer", "logit lens", low=0,
    ),
    SignalSpec(
        "information_processing_rate", "token", "lens",
        "how late and how surely the layers settle on the predicted token, not calibrated", f"{_LUMINA}, eq. 8", low=0,
    ),
    SignalSpec(
        "information_processing_rate_calibrated", "token", "lens",
        "the same times p(token) / p(predicted token)", f"{_LUMINA}, eq. 11", low=0,
    ),
    SignalSpec(
        "mmd", "token", "contrast",
        "squared maximum mean discrepancy of the outputs under the passages and under a random document, in [0, 2]",
        f"{_LUMINA}, section 4.1", low=0, high=2,
    ),
    SignalSpec("token_logprob", "token", "output", "log probability (nats) of the token", "perplexity", high=0),
    SignalSpec(
        "token_logprob_contrast", "token", "contrast", "log probability (nats) under a random document", "own", high=0,
    ),
    SignalSpec(
        "token_entropy", "token", "output", "entropy (nats) of the output distribution", "predictive entropy", low=0,
    ),
    SignalSpec("token_energy", "token", "output", "minus the log-sum-exp of the logits", "Energy, arXiv 2010.03759"),
    SignalSpec(
        "passage_percentage", "token", "layout", "passage tokens over tokens read so far", f"{_AGGTRUTH}, section 3.3",
        low=0, high=1,
    ),
)  # fmt: skip

SIGNALS: dict[str, SignalSpec] = {spec.name: spec for spec in _SPECS}
"""The signals that every model has. There is one more per layer: see :func:`hidden_state`; and ``mmd`` has further
forms (``mmd_top100``, ``mmd_rbf_top100_sigma1``): see :class:`groundscope.trace.signals.forms.MmdForm`."""

_STATE = re.compile(r"hidden_state_(0|[1-9][0-9]{0,3})")


def hidden_state(layer: int) -> str:
    """Return the name of the residual stream after a layer, 0-based: axes token x channel, at the predicting row."""
    return f"hidden_state_{layer}"


def layer_of(name: str) -> int | None:
    """Return the layer that a name from :func:`hidden_state` speaks of; ``None`` for any other name."""
    match = _STATE.fullmatch(name)
    return int(match[1]) if match else None


def spec_of(name: str) -> SignalSpec:
    """Return what is known about a signal.

    Raises:
        UnknownNameError: If there is none of that name.
    """
    if name in SIGNALS:
        return SIGNALS[name]
    form = mmd_form(name)
    if form is not None:
        kernel = "cosine kernel" if form.kernel == "cosine" else f"rbf kernel of width {form.sigma:g}"
        summary = f"mmd between the {form.top_k} likeliest tokens of each reading, {kernel}, in [0, 2]"
        return SignalSpec(name, "token", "contrast", summary, f"{_LUMINA}, section 4.1 and figure 5", 0, 2)
    layer = layer_of(name) if isinstance(name, str) else None
    if layer is None:
        raise UnknownNameError("signal", name, [*SIGNALS, "hidden_state_<layer>", "mmd_top<k>"])
    summary = f"residual stream after layer {layer} (0-based), at the row that predicts the token"
    return SignalSpec(name, "token x channel", "states", summary, "hidden-state probes")


def range_of(name: str) -> tuple[float, float]:
    """Return the least and the greatest value of a signal; no bounds for what a detector gathers itself."""
    try:
        spec = spec_of(name)
    except UnknownNameError:
        return -math.inf, math.inf
    return spec.low, spec.high


def check_signals(names: Iterable[str]) -> tuple[str, ...]:
    """Return the requested names once each, in order.

    Raises:
        UnknownNameError: If one is not a signal.
        InputError: If there is none, or a bare string was given.
    """
    if isinstance(names, str):
        raise InputError(f"The signals must be a list of names. Got the string {names!r}; write [{names!r}].")
    if not isinstance(names, Iterable):
        raise InputError(f"The signals must be a list of names. Got {names!r} instead.")
    given = list(names)
    for name in given:
        if not isinstance(name, str):
            raise UnknownNameError("signal", name, SIGNALS)
    requested = tuple(dict.fromkeys(given))
    if not requested:
        raise InputError("At least one signal must be requested. Got none.")
    for name in requested:
        spec_of(name)
    return requested


def sources_of(names: Sequence[str]) -> frozenset[Source]:
    """Return what must be read for the named signals."""
    return frozenset(spec_of(name).source for name in names)
