"""One number per response token that is put to a test: a signal, one layer or head of it, or a detector's score."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from groundscope.detectors.base import Detector
from groundscope.errors import InputError, UnknownNameError, check_choice
from groundscope.evaluate.metrics.binary import Floats
from groundscope.trace.signals import SIGNALS, spec_of
from groundscope.trace.signals.forms import mmd_form
from groundscope.trace.trace import Trace

if TYPE_CHECKING:
    from groundscope.lm.language_model import LanguageModel

Role = Literal["external", "internal"]
ROLES: tuple[Role, ...] = ("external", "internal")
# What a signal is taken for where nobody says; forms of the MMD are external too.
_DEFAULT_ROLES: dict[str, Role] = {
    "external_context_score": "external",
    "chunk_context_score": "external",
    "information_processing_rate": "internal",
    "information_processing_rate_calibrated": "internal",
    "parametric_knowledge_score": "internal",
}
# Zero by definition where the prompt holds no passage, so nothing can be learnt from a prompt without one.
_OF_PASSAGES = frozenset(
    {
        "lookback_ratio_passages",
        "aggtruth_sum",
        "aggtruth_cosine",
        "aggtruth_entropy",
        "aggtruth_js",
        "external_context_score",
        "chunk_context_score",
        "passage_attention",
        "passage_percentage",
    }
)
_PLACE = re.compile(r"(?P<name>.+)@(?P<layer>\d+)(?:\.(?P<head>\d+))?")


@dataclass(frozen=True)
class Quantity:
    """What is tested.

    Attributes:
        name: As given.
        role: ``external``: expected to rise where the documents are used; ``internal``: where the model's own
            knowledge is.
        signal: A signal's name; ``None`` for a detector.
        layer: Which layer of it, 0-based; ``None`` for the mean over layers.
        head: Which head of that layer; ``None`` for the mean over heads.
        detector: Whose token scores; ``None`` for a signal.
    """

    name: str
    role: Role
    signal: str | None = None
    layer: int | None = None
    head: int | None = None
    detector: Detector | None = None

    @classmethod
    def parse(cls, given: str, role: str | None = None) -> Quantity:
        """Read ``mmd``, ``parametric_knowledge_score@20``, ``external_context_score@5.3``, or name a detector.

        Args:
            given: A signal, reduced by its mean over layers and heads unless ``@LAYER`` or ``@LAYER.HEAD`` follows; the
                name of a detector; or the folder of a trained one.
            role: ``external`` or ``internal``; signals of the four methods know theirs.

        Raises:
            InputError: If the role is neither known nor given, or the signal has no value per token.
            UnknownNameError: If there is no such signal or detector.
        """
        from groundscope.detectors.registry import names
        from groundscope.detectors.saved.folder import resolve_detector

        if role is not None:
            check_choice("Quantity", "role", role, ROLES)
        match = _PLACE.fullmatch(given)
        name = match["name"] if match else given
        layer = int(match["layer"]) if match else None
        head = int(match["head"]) if match and match["head"] else None
        if name not in SIGNALS and mmd_form(name) is None:
            try:
                detector = resolve_detector(given)
            except UnknownNameError:
                raise UnknownNameError("signal or detector", given, [*SIGNALS, *names()]) from None
            return cls(given, _role(given, role), detector=detector)
        axes = spec_of(name).axes
        allowed = {"token": 0, "token x layer": 1, "token x layer x head": 2}
        if axes not in allowed:
            raise InputError(f"A signal with a value per token, layer or head is needed. Got {name!r}, {axes}.")
        if (layer is not None) + (head is not None) > allowed[axes]:
            raise InputError(f"The signal {name!r} has the axes {axes}. Got {given!r}, which names more of them.")
        return cls(given, _role(name, role), name, layer, head)

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that must be read."""
        if self.detector is not None:
            return tuple(self.detector.signals)
        return () if self.signal is None else (self.signal,)

    @property
    def needs_passages(self) -> bool:
        """Whether it is zero, or not defined, under a prompt without passages."""
        return bool(_OF_PASSAGES.intersection(self.signals))

    def check_model(self, lm: LanguageModel) -> None:
        """Refuse a layer or head that a model does not have, before it reads anything.

        Raises:
            InputError: If there is none.
        """
        if self.signal is None or self.layer is None:
            return
        attention = spec_of(self.signal).source == "attention"
        layers = lm.anatomy.attention_layers if attention else range(len(lm.anatomy.layers))
        self._check_place(lm.name, layers, lm.anatomy.heads)

    def _check_place(self, model: str, layers: Sequence[int], heads: int) -> None:
        if self.layer is not None and self.layer not in layers:
            there = f"{len(layers)} layers, {layers[0]} to {layers[-1]}" if layers else "no layer"
            raise InputError(f"{model} has this signal in {there}. Got layer {self.layer}.")
        if self.head is not None and self.head >= heads:
            raise InputError(f"{model} has heads 0 to {heads - 1}. Got head {self.head}.")

    def values(self, trace: Trace) -> Floats:
        """Return (token,) values.

        Raises:
            InputError: If the model has no such layer or head.
        """
        if self.detector is not None:
            return np.asarray(self.detector.token_scores(trace), dtype=np.float64)
        assert self.signal is not None  # noqa: S101
        array = trace[self.signal].astype(np.float64)
        if self.layer is not None:
            attention = spec_of(self.signal).source == "attention" and bool(trace.attention_layers)
            layers = list(trace.attention_layers) if attention else list(range(array.shape[1]))
            self._check_place(trace.model, layers, array.shape[-1])
            array = array[:, layers.index(self.layer)]
        if self.head is not None:
            array = array[:, self.head]
        means: Floats = array.reshape(len(array), -1).mean(axis=1)
        return means


def _role(name: str, given: str | None) -> Role:
    for role in ROLES:
        if given == role:
            return role
    found = "external" if mmd_form(name) is not None else _DEFAULT_ROLES.get(name)
    if found is None:
        raise InputError(
            f"Which hypotheses apply to {name!r} depends on what it stands for. Pass role='external' if it should "
            "rise with the use of the documents, role='internal' if with the use of the model's own knowledge "
            "(--role on the command line)."
        )
    return found
