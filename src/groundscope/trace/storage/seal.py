"""Digests of what stands in a shard, so that a text or value that was edited is not taken for what a model read.

They are kept per column, so that what is not loaded need not be read to be checked. They guard against mistakes:
whoever writes a shard anew with new digests is believed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

_FACTS = ("shapes", "fingerprint", "model")
_DESCRIPTION = "description"


def seal(table: Any, meta: Mapping[str, Any]) -> dict[str, str]:
    """Return the digest of every column of a table of pyarrow and of what is said about it."""
    return {_DESCRIPTION: _of_facts(meta), **{name: _of_column(table[name]) for name in table.column_names}}


def check_seal(table: Any, meta: Mapping[str, Any]) -> None:
    """Compare what was read with what was written.

    Args:
        table: Some of the columns.
        meta: What is said about them, ``digests`` among it.

    Raises:
        ValueError: If one is not what it was.
        LookupError: If one has no digest.
    """
    digests = meta["digests"]
    if _of_facts(meta) != digests[_DESCRIPTION]:
        raise ValueError("its description was changed after it was written")
    for name in table.column_names:
        if _of_column(table[name]) != digests[name]:
            raise ValueError(f"its column {name!r} was changed after it was written")


def _of_facts(meta: Mapping[str, Any]) -> str:
    text = json.dumps({name: meta[name] for name in _FACTS}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _of_column(column: Any) -> str:
    import pyarrow as pa
    import pyarrow.compute as pc

    made = hashlib.sha256()
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        made.update(str(kind.value_type).encode())
        lengths = pc.fill_null(pc.list_value_length(column), -1)
        made.update(np.ascontiguousarray(lengths.to_numpy(), np.int64).data)
        for chunk in column.chunks:
            made.update(np.ascontiguousarray(chunk.flatten().to_numpy(zero_copy_only=False)).view(np.uint8).data)
    else:
        made.update(json.dumps([str(kind), column.to_pylist()]).encode())
    return made.hexdigest()
