"""Loading weights and tokenizer by name."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from groundscope.errors import GroundscopeError, InputError, PrerequisiteError, UnknownNameError
from groundscope.lm.loading.catalog import EMBEDDED, is_embedded
from groundscope.lm.loading.convert import load_gguf
from groundscope.lm.loading.embedded import ensure_embedded
from groundscope.lm.loading.hub import why_unreachable
from groundscope.lm.loading.quiet import without_bars


def load(name: str, dtype: torch.dtype | str, trust_remote_code: bool = False) -> tuple[Any, Any]:
    """Load a model and its tokenizer.

    Args:
        name: An embedded model, a hub id, a folder, or a ``.gguf`` file.
        dtype: A torch dtype, or ``auto`` for what the weights are stored in.
        trust_remote_code: Run code that comes with the model.

    Raises:
        UnknownNameError: If the name looks like an embedded model's but is none.
        PrerequisiteError: If files or packages are missing or cannot be fetched.
        InputError: If the files hold no complete causal language model.
    """
    path = _existing(name)
    unreachable = None
    try:
        if is_embedded(name):
            folder = str(ensure_embedded(name))
            with without_bars():
                model, tokenizer = _from_folder(folder, dtype, False)
        elif name.lower().endswith(".gguf"):
            if path is None or not path.is_file():
                raise InputError(f"The model file {name} does not exist. Give the path of a .gguf file.")
            model, tokenizer = load_gguf(path, None if dtype == "auto" else dtype)
        else:
            _check_name(name, path)
            unreachable = why_unreachable() if path is None else None
            with nullcontext() if path is None else without_bars():  # a download may take long
                model, tokenizer = _from_folder(
                    name if path is None else str(path), dtype, trust_remote_code, local=unreachable is not None
                )
    except GroundscopeError:
        raise
    except Exception as exc:  # whatever files hold, the libraries that read them raise what they like
        advice = (
            "Check that it is a complete causal language model with its tokenizer."
            if path is not None
            else "Check the name and the network, or download it first and give the folder."
        )
        kind = PrerequisiteError if isinstance(exc, (OSError, ImportError)) else InputError
        reason = _reason(exc)
        if unreachable is not None and isinstance(exc, OSError):
            reason = f"the cache of the hub does not hold it whole, and {unreachable}."
        raise kind(f"The model {name!r} could not be loaded: {reason} {advice}") from exc
    model.eval()
    return model, tokenizer


def _from_folder(
    source: str, dtype: torch.dtype | str, trust_remote_code: bool, *, local: bool = False
) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where: dict[str, Any] = {"trust_remote_code": trust_remote_code, "local_files_only": local}
    tokenizer = AutoTokenizer.from_pretrained(source, **where)
    model, report = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, output_loading_info=True, **where)
    if missing := sorted(report["missing_keys"]):
        # transformers fills them with random numbers and only warns.
        raise InputError(
            f"The model {source} is incomplete: {len(missing)} weight(s) are missing, first {missing[0]!r}. "
            "Give a complete causal language model (not an encoder, a base model or an adapter)."
        )
    return model, tokenizer


def _reason(exc: Exception) -> str:
    """The beginning of a library's message as one sentence, which may run over several of its lines."""
    text = ""
    for line in str(exc).splitlines():
        text = f"{text} {line.strip()}".strip()
        if text and not text.endswith((":", ",", ";", " or", " and")):
            break
    text = text.rstrip(" :,;")
    if not isinstance(exc, (OSError, ValueError, ImportError)) or not text:
        text = f"{type(exc).__name__}: {text}"
    return text if text.endswith((".", "!")) else f"{text}."


def _existing(name: str) -> Path | None:
    """The path that a name stands for, if it can be one and something is there."""
    try:
        path = Path(name).expanduser()
        path.stat()
    except (OSError, RuntimeError, ValueError):  # missing; too long; of an unknown user; a null character
        return None
    return path


def _check_name(name: str, path: Path | None) -> None:
    if name and path is not None and path.is_dir():
        if not (path / "config.json").is_file():
            raise InputError(f"The folder {name} holds no model: config.json is missing.")
    elif "/" not in name:
        raise UnknownNameError(
            "model", name, EMBEDDED, "Or give a hub id (owner/name), a folder with a model, or a .gguf file."
        )
    elif name.count("/") > 1 or name.startswith((".", "/", "~")):
        raise InputError(f"The folder {name} does not exist. Give a folder with a model, or a hub id (owner/name).")
