"""Detectors by name: built in, registered in the process, or from installed packages.

A package adds a detector through an entry point of the group ``groundscope.detectors`` whose name is the
detector's and whose value is its class.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, TypeVar

from groundscope.detectors.base import Detector
from groundscope.errors import GroundscopeError, InputError, PrerequisiteError, UnknownNameError

ENTRY_POINTS = "groundscope.detectors"
_BUILT_IN = {
    "aggtruth": "groundscope.detectors.learned.aggtruth:AggTruth",
    "contrast": "groundscope.detectors.untrained.contrast:Contrast",
    "eigenscore": "groundscope.detectors.untrained.sampled:EigenScore",
    "energy": "groundscope.detectors.untrained.uncertainty:Energy",
    "entropy": "groundscope.detectors.untrained.uncertainty:Entropy",
    "hidden-state": "groundscope.detectors.learned.hidden_state:HiddenState",
    "length": "groundscope.detectors.untrained.controls:Length",
    "lookback-lens": "groundscope.detectors.learned.lookback_lens:LookbackLens",
    "lumina": "groundscope.detectors.untrained.lumina:Lumina",
    "max-surprise": "groundscope.detectors.untrained.uncertainty:MaxSurprise",
    "nli": "groundscope.detectors.untrained.nli:Nli",
    "novelty": "groundscope.detectors.untrained.controls:Novelty",
    "p-true": "groundscope.detectors.untrained.asked:PTrue",
    "perplexity": "groundscope.detectors.untrained.uncertainty:Perplexity",
    "redeep-chunk": "groundscope.detectors.learned.redeep_chunk:ReDeEPChunk",
    "redeep-token": "groundscope.detectors.learned.redeep:ReDeEPToken",
    "saplma": "groundscope.detectors.learned.hidden_state:Saplma",
    "selfcheck": "groundscope.detectors.untrained.sampled:SelfCheck",
}
_REGISTERED: dict[str, type[Detector]] = {}
DetectorClass = TypeVar("DetectorClass", bound=type[Detector])


@dataclass(frozen=True)
class DetectorInfo:
    """What a user should know about a detector before choosing it."""

    name: str
    summary: str
    signals: tuple[str, ...]
    needs_training: bool
    aggregation: str
    reference: str


def register(name: str) -> Callable[[DetectorClass], DetectorClass]:
    """Make a detector class known under a name, for this process.

    Raises:
        InputError: If the name is taken by another class.
    """

    def add(cls: DetectorClass) -> DetectorClass:
        if name in _BUILT_IN or _REGISTERED.get(name, cls) is not cls:
            raise InputError(f"A detector named {name!r} exists already. Choose another name.")
        _REGISTERED[name] = cls
        return cls

    return add


def names() -> list[str]:
    """Return the names of all known detectors."""
    return sorted({*_BUILT_IN, *_REGISTERED, *(point.name for point in entry_points(group=ENTRY_POINTS))})


def class_of(name: str) -> type[Detector]:
    """Return a detector class by name.

    Raises:
        UnknownNameError: If there is none of that name.
        PrerequisiteError: If the package that provides it cannot be imported.
    """
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        return getattr(importlib.import_module(module), attribute)  # type: ignore[no-any-return]
    if name in _REGISTERED:
        return _REGISTERED[name]
    for point in entry_points(group=ENTRY_POINTS, name=name):
        try:
            loaded = point.load()
        except Exception as exc:  # whatever a foreign package raises
            raise PrerequisiteError(f"The detector {name!r} ({point.value}) could not be imported: {exc}.") from exc
        if not (isinstance(loaded, type) and issubclass(loaded, Detector)):
            raise PrerequisiteError(f"The entry point {name!r} ({point.value}) is not a subclass of Detector.")
        return loaded
    raise UnknownNameError("detector", name, names())


def from_name(name: str, **params: Any) -> Detector:
    """Return a detector by name.

    Args:
        name: Its name.
        **params: Its constructor's arguments.

    Raises:
        UnknownNameError: If there is none of that name.
        InputError: If a parameter is not one of its own.
    """
    cls = class_of(name)
    try:
        return cls(**params)
    except TypeError as exc:
        known = ", ".join(cls.parameters()) or "none"
        raise InputError(
            f"The detector {name!r} cannot be made with {params!r}: {exc}. Its parameters: {known}."
        ) from exc


def available() -> dict[str, DetectorInfo]:
    """Return what is known about every detector, by name; one that cannot be had says why in its summary."""
    return {name: _info(name) for name in names()}


def _info(name: str) -> DetectorInfo:
    try:
        detector = from_name(name)
    except GroundscopeError as exc:
        return DetectorInfo(name, f"not usable: {exc}", (), False, "", "")
    cls = type(detector)
    return DetectorInfo(name, cls.summary, detector.signals, cls.needs_training, detector.aggregation, cls.reference)
