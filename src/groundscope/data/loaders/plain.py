"""Groundscope's own records, with the checks that reading for scoring does not need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from groundscope.data.jsonl import BadRecord
from groundscope.data.labelling.occurrences import check_label_text
from groundscope.data.loaders.objects import convert_files
from groundscope.example import Example


def is_plain(record: Mapping[str, Any]) -> bool:
    """Whether a record is one that :meth:`groundscope.Example.from_dict` reads."""
    return "response" in record and bool({"context", "passages", "question"} & record.keys())


def read_plain(paths: Sequence[Path]) -> Iterator[Example | BadRecord]:
    """Yield the examples of JSON Lines or of JSON arrays.

    Where a label carries its ``text``, it must be what stands between its offsets.
    """
    return convert_files(paths, _convert)


def _convert(path: Path, number: int, record: Mapping[str, Any]) -> Iterable[Example]:
    example = Example.from_dict(record)
    for index, label in enumerate(example.labels or ()):
        check_label_text(index, example.response, label.start, label.end, record["labels"][index].get("text"))
    yield example if example.id is not None else replace(example, id=f"line-{number}")
