"""Trained detectors on disk: ``detector.json`` and ``detector.safetensors``, nothing that could run.

The folder also holds ``README.md``, the model card. It appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from groundscope._version import __version__
from groundscope.data.jsonl import file_sha256
from groundscope.detectors.base import Detector
from groundscope.detectors.learnable import LearnedDetector
from groundscope.detectors.registry import from_name, names
from groundscope.errors import GroundscopeError, InputError, PrerequisiteError, UnknownNameError
from groundscope.outputs.places import FolderKind
from groundscope.outputs.writing import replaced_folder
from groundscope.verdict_parts import Threshold, is_threshold

CONFIG, ARRAYS, CARD = "detector.json", "detector.safetensors", "README.md"
SAVED_DETECTOR = FolderKind("saved detector", CONFIG, parts=(ARRAYS, CARD))
_FORMAT = 1


def resolve_detector(given: str) -> Detector:
    """Return a detector by name, ``NAME:PARAM=VALUE,...``, or a trained one from its folder or hub repository.

    A registered name wins; then a folder; what has a slash in it and is neither is looked up on the hub. Values of
    parameters are JSON where they can be read as such, else text.

    Raises:
        UnknownNameError: If it is none of these.
        InputError: If the folder holds no detector of this format.
        PrerequisiteError: If the hub does not give it.
    """
    name, colon, settings = given.partition(":")
    if name in names() and (not colon or not Path(given).exists()):
        return from_name(name, **(parameters(settings.split(",")) if colon else {}))
    if Path(given).exists() or "/" in given:
        return load_detector(given)
    raise UnknownNameError("detector", given, names(), "A trained detector is given by its folder.")


def parameters(given: Sequence[str]) -> dict[str, Any]:
    """Read ``NAME=VALUE``; a value is JSON where it can be read as such, else text.

    Raises:
        InputError: If one has no name.
    """
    found: dict[str, Any] = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not name or not equals:
            raise InputError(f"A parameter must be given as NAME=VALUE. Got {item!r} instead.")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def save_detector(detector: LearnedDetector, folder: str | Path, card: str | None = None) -> Path:
    """Write a trained detector.

    Args:
        detector: Fitted.
        folder: Where to; an earlier detector there is replaced, anything else is refused.
        card: The model card, Markdown; a short one is written if there is none.

    Returns:
        The folder.

    Raises:
        PrerequisiteError: If the detector is not fitted, or the folder cannot be written.
        InputError: If the folder holds something else.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save

    detector.check_fitted()
    check_folder(folder, overwrite=True)
    arrays, facts = detector.state()
    try:
        packed = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    except (SafetensorError, LookupError, TypeError, ValueError, AttributeError) as exc:
        raise InputError(f"What {detector.name!r} learnt cannot be written as plain arrays: {exc!r}.") from exc
    threshold = detector.threshold_
    config = {
        "format": _FORMAT,
        "groundscope": __version__,
        "detector": detector.name,
        "params": detector.get_params(),
        "facts": facts,
        "fingerprint": detector.fingerprint_,
        "threshold": None if threshold is None else asdict(threshold),
        "trained_on": detector.trained_on_,
        "arrays_sha256": hashlib.sha256(packed).hexdigest(),
    }
    try:
        text = json.dumps(config, indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as exc:
        raise InputError(f"What {detector.name!r} was made with or learnt cannot be written as JSON: {exc}.") from exc
    with replaced_folder(folder) as made:
        (made / ARRAYS).write_bytes(packed)
        (made / CONFIG).write_text(text + "\n", encoding="utf-8")
        (made / CARD).write_text(card or _short_card(detector), encoding="utf-8")
    return Path(folder)


def check_folder(folder: str | Path, *, overwrite: bool = False) -> None:
    """Refuse a place that no detector may be saved in; see :meth:`FolderKind.check`."""
    SAVED_DETECTOR.check(folder, overwrite=overwrite)


def load_detector(source: str | Path) -> LearnedDetector:
    """Load a trained detector from a folder or a hub repository.

    Raises:
        InputError: If it is not a detector that this version reads.
        UnknownNameError: If its method is not known here (a plug-in may be missing).
        PrerequisiteError: If the hub does not give it.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    folder = Path(source) if Path(source).exists() else _from_hub(str(source))
    try:
        config: Any = json.loads((folder / CONFIG).read_text(encoding="utf-8"), parse_constant=_refused)
        arrays = load_file(folder / ARRAYS)
    except FileNotFoundError as exc:
        raise InputError(
            f"{str(source)!r} is no saved detector: it lacks {Path(str(exc.filename or ARRAYS)).name}."
        ) from exc
    except (OSError, ValueError, TypeError, RecursionError, SafetensorError) as exc:
        raise InputError(f"The detector in {str(source)!r} is damaged: {exc}. Train or copy it again.") from exc
    if not isinstance(config, dict) or config.get("format") != _FORMAT:
        found = config.get("format") if isinstance(config, dict) else config
        raise InputError(
            f"{str(source)!r} has the detector format {found!r}; this version of groundscope reads {_FORMAT}."
        )
    if config.get("arrays_sha256") not in (None, file_sha256(folder / ARRAYS)):
        raise InputError(
            f"The detector in {str(source)!r} is damaged: {ARRAYS} is not what was saved with its {CONFIG}. Train or "
            "copy it again."
        )
    try:
        detector = from_name(config["detector"], **config["params"])
        if not isinstance(detector, LearnedDetector):
            raise InputError(f"{str(source)!r} names the method {config['detector']!r}, which does not learn.")
        detector.restore(arrays, config["facts"])
        detector.fingerprint_, detector.trained_on_, detector.threshold_ = _origin(config)
    except GroundscopeError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as exc:
        raise InputError(f"The detector in {str(source)!r} is damaged ({exc!r}). Train or copy it again.") from exc
    return detector


def _refused(constant: str) -> None:
    raise ValueError(f"it holds {constant} where a number must stand")


def _origin(config: dict[str, Any]) -> tuple[dict[str, Any], list[str], Threshold | None]:
    """Return what a detector was fitted on, what it has seen and its thresholds, all of the right kind.

    Raises:
        ValueError: If one is not.
    """
    fingerprint, seen, given = config["fingerprint"], config["trained_on"], config["threshold"]
    if not isinstance(fingerprint, dict) or not isinstance(fingerprint.get("model", ""), str):
        raise ValueError("fingerprint")
    if not isinstance(seen, list) or not all(isinstance(mark, str) for mark in seen):
        raise ValueError("trained_on")
    threshold = None if given is None else Threshold(**given)
    if threshold is not None and not is_threshold(threshold):
        raise ValueError("threshold")
    return fingerprint, seen, threshold


def push_detector(detector: LearnedDetector, repository: str, *, private: bool = False) -> str:
    """Upload a trained detector to a hub repository and return its address.

    Raises:
        PrerequisiteError: If the hub refuses.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    with tempfile.TemporaryDirectory() as place:
        folder = save_detector(detector, Path(place) / "detector")
        try:
            api = HfApi()
            address = api.create_repo(repository, private=private, exist_ok=True)
            api.upload_folder(repo_id=repository, folder_path=folder, commit_message=f"Add {detector.name}")
        except (HfHubHTTPError, OSError, ValueError) as exc:
            raise PrerequisiteError(f"The hub did not take {repository!r}: {exc}") from exc
    return str(address)


def _from_hub(repository: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    from groundscope.lm.loading.hub import why_unreachable

    unreachable = why_unreachable()
    local = unreachable is not None
    try:
        return Path(snapshot_download(repository, allow_patterns=[CONFIG, ARRAYS, CARD], local_files_only=local))
    except HFValidationError as exc:
        raise InputError(f"{repository!r} is neither a folder nor a hub repository.") from exc
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as exc:
        reason = f"{unreachable}, and its cache lacks it." if unreachable else str(exc).splitlines()[0]
        raise PrerequisiteError(f"{repository!r} is no folder here, and the hub does not give it: {reason}") from exc


def _short_card(detector: LearnedDetector) -> str:
    return (
        f"---\nlibrary_name: groundscope\ntags: [hallucination-detection]\n---\n\n# {detector.name}\n\n"
        f"A groundscope detector ({detector.reference}) for {detector.fingerprint_.get('model')!r}. "
        "It was saved without a training report.\n"
    )
