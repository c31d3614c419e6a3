"""Frozen dataclasses from plain JSON values: the reverse of :func:`dataclasses.asdict`."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Mapping
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from groundscope.errors import InputError

Record = TypeVar("Record")


def read_record(cls: type[Record], value: Any, where: str = "the record") -> Record:
    """Build a dataclass, and the dataclasses in it, from what its ``asdict`` became in JSON.

    Args:
        cls: A dataclass of plain values, tuples, string-keyed dicts and other such dataclasses.
        value: The JSON object.
        where: How messages call it.

    Raises:
        InputError: If a field is missing, unknown or of another type.
    """
    if not isinstance(value, Mapping):
        raise InputError(f"{where} must be a JSON object. Got {type(value).__name__} instead.")
    hints = _hints(cls)  # type: ignore[arg-type]
    unknown = set(value) - set(hints)
    missing = set(hints) - set(value)
    if unknown or missing:
        wrong = [f"{name!r} is missing" for name in sorted(missing)] + [f"{name!r} is unknown" for name in unknown]
        raise InputError(f"{where} must have the fields {', '.join(hints)}. Of these, {', '.join(wrong)}.")
    return cls(**{name: _read(hint, value[name], f"{where}.{name}") for name, hint in hints.items()})


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {item.name: hints[item.name] for item in dataclasses.fields(cls)}


def _read(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (inner,) = (item for item in arguments if item is not type(None))
        return _read(inner, value, where)
    if origin is tuple:
        return _read_tuple(arguments, value, where)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise InputError(f"{where} must be a JSON object. Got {type(value).__name__} instead.")
        return {str(key): _read(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return read_record(hint, value, where)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise InputError(f"{where} must be of the type {hint.__name__}. Got {value!r} instead.")
    return value


def _read_tuple(arguments: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise InputError(f"{where} must be a list. Got {type(value).__name__} instead.")
    hints = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
    if len(hints) != len(value):
        raise InputError(f"{where} must have {len(hints)} entries. Got {len(value)} instead.")
    return tuple(_read(hint, item, f"{where}[{i}]") for i, (hint, item) in enumerate(zip(hints, value, strict=True)))
