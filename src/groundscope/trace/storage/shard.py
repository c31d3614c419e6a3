"""One shard of a trace store: a Parquet file of examples, layouts and signals."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from groundscope.errors import InputError, MismatchError
from groundscope.example import Example
from groundscope.lm.prompt.layout import Layout
from groundscope.trace.signals import SIGNALS, range_of
from groundscope.trace.storage.seal import check_seal, seal
from groundscope.trace.trace import Trace
from groundscope.trace.traced import TracedExample

# 1 had no digests.
FORMAT = 2
READABLE = (1, FORMAT)
_PREFIX = "signal:"
_ROUNDING = 1e-3


def shard_ids(path: Path, fingerprint: Mapping[str, Any]) -> list[str]:
    """Return the ids in a shard.

    Raises:
        InputError: If it is damaged.
        MismatchError: If it is of another model or template.
    """
    with _told_as_damage(path):
        table, _ = _read(path, ["id"], fingerprint)
        return [str(value) for value in table["id"].to_pylist()]


def is_sealed(path: Path) -> bool:
    """Whether a shard says what was written in it; those of the first format do not."""
    with _told_as_damage(path):
        return bool(_meta(_schema(path))["format"] != READABLE[0])


def _read(path: Path, columns: Sequence[str], fingerprint: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return some columns and what is said about them, both as they were written."""
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=list(columns), page_checksum_verification=True)
    meta = _meta(table.schema)
    _check_origin(path, meta, fingerprint)
    if meta["format"] not in READABLE:
        raise ValueError(f"its format is {meta['format']!r}, and this version of groundscope reads {READABLE}")
    if meta["format"] != READABLE[0]:
        check_seal(table, meta)
    return table, meta


def _meta(schema: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(schema.metadata[b"groundscope"])
    return found


def _check_origin(path: Path, meta: Mapping[str, Any], fingerprint: Mapping[str, Any]) -> None:
    if meta["fingerprint"] != fingerprint:
        raise MismatchError(
            f"The shard {str(path)!r} is of another model or template than the rest of its store. Remove it and "
            "extract again."
        )


@contextlib.contextmanager
def _told_as_damage(path: Path) -> Iterator[None]:
    """Say of whatever reading a shard raises that the shard is damaged."""
    import pyarrow as pa

    try:
        yield
    except MismatchError:
        raise
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as exc:
        reason = " ".join(str(exc).split()).rstrip(".")
        raise InputError(f"The shard {str(path)!r} is damaged: {reason}. Remove it and extract again.") from exc


def shard_signals(path: Path) -> list[str]:
    """Return the names of the signals in a shard."""
    return [name.removeprefix(_PREFIX) for name in _schema(path).names if name.startswith(_PREFIX)]


def _schema(path: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.read_schema(path)


def _is_half(name: str, array: npt.NDArray[Any]) -> bool:
    return array.ndim == 3 if name not in SIGNALS else SIGNALS[name].axes == "token x layer x head"


def write_shard(path: Path, rows: Sequence[tuple[int, TracedExample]], fingerprint: Mapping[str, Any]) -> None:
    """Write (place in the input, example) pairs; the shard appears whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    traces = [item.trace for _, item in rows]
    columns: dict[str, Any] = {
        "id": [item.example.id for _, item in rows],
        "number": [number for number, _ in rows],
        "example": [json.dumps(item.example.to_dict(), ensure_ascii=False) for _, item in rows],
        "layout": [json.dumps(_layout_record(trace)) for trace in traces],
        "prompt_ids": [trace.layout.prompt_ids.astype(np.int32) for trace in traces],
        "response_ids": [trace.layout.response_ids.astype(np.int32) for trace in traces],
    }
    shapes = {}
    for name in traces[0]:
        arrays = [trace[name] for trace in traces]
        half = _is_half(name, arrays[0])
        shapes[name] = list(arrays[0].shape[1:]) if arrays[0].ndim != 2 or _fixed(arrays) else None
        flat = np.concatenate([array.ravel() for array in arrays]).astype(np.float16 if half else np.float32)
        ends = np.concatenate([[0], np.cumsum([array.size for array in arrays])])
        columns[_PREFIX + name] = pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), pa.array(flat))
    meta: dict[str, Any] = {"shapes": shapes, "fingerprint": fingerprint, "model": traces[0].model, "format": FORMAT}
    table = pa.table(columns)
    meta["digests"] = seal(table, meta)
    table = table.replace_schema_metadata({"groundscope": json.dumps(meta)})
    temporary = path.with_suffix(".tmp")
    try:
        pq.write_table(
            table,
            temporary,
            compression="zstd",
            use_dictionary=False,
            row_group_size=len(rows),
            write_page_checksum=True,
        )
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _fixed(arrays: Sequence[npt.NDArray[Any]]) -> bool:
    return len({array.shape[1:] for array in arrays}) == 1


def _layout_record(trace: Trace) -> dict[str, Any]:
    layout = trace.layout
    return {
        "passages": layout.passages,
        "header": layout.header,
        "passage_numbers": layout.passage_numbers,
        "offsets": None if layout.response_offsets is None else np.asarray(layout.response_offsets).tolist(),
        "contrast": dict(layout.contrast),
        "attention_layers": trace.attention_layers,
        "blind_layers": trace.blind_layers,
    }


def read_shard(path: Path, signals: Sequence[str], fingerprint: Mapping[str, Any]) -> list[tuple[int, TracedExample]]:
    """Return the places in the input and the examples of a shard, with some of the signals.

    Raises:
        InputError: If it is damaged.
        MismatchError: If it is of another model or template.
    """
    with _told_as_damage(path):
        return list(_rows(path, signals, fingerprint))


def _check_range(name: str, values: npt.NDArray[np.float32], where: str | None) -> None:
    low, high = range_of(name)
    for value in (values.min(), values.max()) if values.size else ():
        # Half precision rounds by up to half a thousandth; wider than that is another quantity.
        if not low - _ROUNDING * max(1.0, abs(low)) <= value <= high + _ROUNDING * max(1.0, abs(high)):
            raise ValueError(
                f"the signal {name!r} of the example {where!r} holds {value:g}, and lies in [{low:g}, {high:g}]"
            )


def _rows(path: Path, signals: Sequence[str], fingerprint: Mapping[str, Any]) -> Iterator[tuple[int, TracedExample]]:
    names = ["id", "number", "example", "layout", "prompt_ids", "response_ids", *(_PREFIX + name for name in signals)]
    table, meta = _read(path, names, fingerprint)
    values = {name: table[_PREFIX + name].combine_chunks() for name in signals}
    for row in range(table.num_rows):
        number, record = table["number"][row].as_py(), json.loads(table["layout"][row].as_py())
        if number is None:
            raise ValueError(f"row {row} has no number")
        example = Example.from_dict(json.loads(table["example"][row].as_py()))
        offsets = record["offsets"]
        layout = Layout(
            prompt_ids=np.asarray(table["prompt_ids"][row].values, dtype=np.int64),
            response_ids=np.asarray(table["response_ids"][row].values, dtype=np.int64),
            passages=tuple((start, end) for start, end in record["passages"]),
            header=(record["header"][0], record["header"][1]),
            response=example.response,
            response_offsets=None if offsets is None else np.asarray(offsets, dtype=np.int64).reshape(-1, 2),
            passage_numbers=tuple(record["passage_numbers"]),
            contrast=record["contrast"],
        )
        arrays = {}
        for name, column in values.items():
            flat = column[row].values.to_numpy(zero_copy_only=False).astype(np.float32)
            if not np.isfinite(flat).all():
                raise ValueError(f"the signal {name!r} of the example {example.id!r} holds NaN or infinity")
            _check_range(name, flat, example.id)
            shape = meta["shapes"][name]
            tail = (-1,) if shape is None and flat.size else (0,) if shape is None else tuple(shape)
            arrays[name] = flat.reshape(layout.response_length, *tail)
        trace = Trace(
            layout,
            arrays,
            meta["model"],
            tuple(record["attention_layers"]),
            record["blind_layers"],
            meta["fingerprint"],
        )
        yield number, TracedExample(example, trace)
