"""``groundscope doctor``: what this machine has, and what a model supports."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import typer

from groundscope._version import __version__
from groundscope.errors import GroundscopeError

_PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "scikit-learn", "pyarrow")


def doctor(
    model: Annotated[str | None, typer.Option(help="Also load this model and say which signals it can yield.")] = None,
    format: Annotated[  # noqa: A002
        Literal["text", "json"], typer.Option("--format", help="How to print the report.")
    ] = "text",
) -> None:
    """Show versions, devices, memory and the cache; with --model, what that model supports."""
    report: dict[str, Any] = {
        "versions": _versions(),
        "devices": _devices(),
        "memory": _memory(),
        "cache": _cache(),
    }
    refused: GroundscopeError | None = None
    if model is not None:
        try:
            report["model"] = _model(model)
        except GroundscopeError as exc:
            refused = exc
            report["model"] = {"name": model, "problem": str(exc)}
    _print(report, format)
    if refused is not None:
        raise refused


def _print(report: dict[str, Any], format: str) -> None:  # noqa: A002
    if format == "json":
        print(json.dumps(report, ensure_ascii=False, indent=2, default=str))
        return
    for heading, content in report.items():
        print(heading)
        for line in _lines(content, "  "):
            print(line)


def _versions() -> dict[str, str]:
    versions = {
        "groundscope": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def _devices() -> dict[str, Any]:
    import torch

    devices: dict[str, Any] = {"cpu": f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"}
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        devices[f"cuda:{index}"] = f"{properties.name}, {_gib(properties.total_memory)}"
    if torch.backends.mps.is_available():
        devices["mps"] = "available"
    return devices


def _memory() -> dict[str, str]:
    if importlib.util.find_spec("psutil"):
        import psutil

        memory = psutil.virtual_memory()
        return {"total": _gib(memory.total), "available": _gib(memory.available)}
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        return {
            "total": _gib(page * os.sysconf("SC_PHYS_PAGES")),
            "available": _gib(page * os.sysconf("SC_AVPHYS_PAGES")),
        }
    except (AttributeError, ValueError, OSError):
        return {"total": "unknown (install psutil to see it)"}


def _cache() -> dict[str, Any]:
    from groundscope.lm.loading.cache import cache_dir
    from groundscope.lm.loading.catalog import EMBEDDED
    from groundscope.lm.loading.embedded import embedded_status

    try:
        report: dict[str, Any] = {"folder": str(cache_dir())}
        for name in EMBEDDED:
            status = embedded_status(name)
            report[name] = "ready" if status.cached else f"not ready: {status.problem}"
    except GroundscopeError as exc:
        return {"problem": str(exc)}
    return report


def _model(name: str) -> dict[str, Any]:
    from groundscope.lm.language_model import LanguageModel

    return {"name": name, **LanguageModel.from_pretrained(name).support()}


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def _lines(content: Any, indent: str) -> Iterator[str]:
    if not content:
        yield f"{indent}none"
    elif isinstance(content, Mapping):
        for key, value in content.items():
            if isinstance(value, Mapping):
                yield f"{indent}{key}"
                yield from _lines(value, indent + "  ")
            else:
                yield f"{indent}{key}: {_inline(value)}"
    else:
        yield f"{indent}{_inline(content)}"


def _inline(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(str, value)) or "none"
    return str(value)
