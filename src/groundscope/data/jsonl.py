"""Read Examples from JSON Lines, plain or gzip, one bad line never costing the others.

The record is that of :meth:`groundscope.Example.from_dict`: ``response`` is needed; ``question``, ``context``
(a string or a list of strings), ``labels``, ``id`` and the rest are optional.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

from groundscope.errors import InputError
from groundscope.example import Example, as_text, check_text

STDIN = "-"
_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class BadRecord:
    """A line that holds no usable record.

    Attributes:
        line: 1-based line number.
        error: What is wrong with it.
        id: The record's identifier, where one could be read.
    """

    line: int
    error: str
    id: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fault as plain JSON values."""
        return {"line": self.line, "id": self.id, "error": self.error}


def read_records(path: str | Path, name: str | None = None) -> Iterator[Example | BadRecord]:
    """Yield one Example or BadRecord per line that is not blank, in order.

    Gzip is recognised by its content, not by its name; a UTF-8 byte order mark is skipped. A record without
    an id gets ``line-N``. Ids are unique in what is yielded: the second use of an id is a BadRecord, because
    resuming a run and joining results with their input both go by id.

    Args:
        path: A file, or ``-`` for standard input.
        name: What messages call it, where it is a copy; the path if ``None``.

    Raises:
        InputError: If the file cannot be read, or is a JSON document and not JSON Lines.
    """
    seen: dict[str, int] = {}
    checked = False
    with open_data(path) as stream:
        for number, raw in numbered_lines(stream):
            if isinstance(raw, BadRecord):
                yield raw
                return
            if not checked:
                _refuse_json_document(name or str(path), raw)
                checked = True
            record = _parse(number, raw)
            if isinstance(record, Example):
                key = record.id or ""
                if key in seen:
                    record = BadRecord(
                        number,
                        f"The id {key!r} is used already on line {seen[key]}. Ids must be unique.",
                        key,
                    )
                else:
                    seen[key] = number
            yield record


def record_line(record: Mapping[str, Any]) -> str:
    """Return a record as one line of JSON, line end included.

    Raises:
        InputError: If it holds NaN, infinity or text that no UTF-8 file can hold.
    """
    try:
        line = json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
        line.encode("utf-8")
    except ValueError as exc:
        raise InputError(f"The record {record.get('id')!r} cannot be written as JSON: {exc}.") from exc
    return line


def count_lines(path: str | Path) -> int:
    """Return how many lines of a file are not blank, without parsing them.

    Raises:
        InputError: If the file cannot be read.
    """
    with open_data(path) as stream:
        return sum(1 for _ in numbered_lines(stream))


def file_sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file as it lies on disk, in hexadecimal."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def open_data(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file, or standard input for ``-``, as bytes; gzip is unpacked.

    Raises:
        InputError: If the file cannot be read.
    """
    with contextlib.ExitStack() as stack:
        if str(path) == STDIN:
            source = cast(io.BufferedReader, sys.stdin.buffer)
        else:
            try:
                source = stack.enter_context(Path(path).open("rb"))
            except OSError as exc:
                raise InputError(f"The file {str(path)!r} cannot be read: {exc.strerror}.") from exc
        if source.peek(2)[:2] == _GZIP_MAGIC:
            yield cast(BinaryIO, stack.enter_context(gzip.GzipFile(fileobj=source)))
        else:
            yield source


def numbered_lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | BadRecord]]:
    """Yield (line number, content) of lines that are not blank; damaged compression ends the file."""
    number = 0
    try:
        for line in stream:
            number += 1
            raw = line.removeprefix(_BOM) if number == 1 else line
            if raw.strip():
                yield number, raw
    except (EOFError, gzip.BadGzipFile, zlib.error) as exc:
        # A stream that merely ends too soon is right up to there. A checksum covers all that came before it.
        before = "" if isinstance(exc, EOFError) else ", and records read before may be altered"
        error = f"The gzip stream is damaged ({exc}); nothing after this line can be read{before}. Copy the file again."
        yield number + 1, BadRecord(number + 1, error)


def _refuse_json_document(path: str, first: bytes) -> None:
    start = first.strip()
    if start.startswith(b"["):
        raise InputError(
            f"{path!r} holds a JSON array; one JSON object per line was expected. "
            f"Convert it, for instance with: jq -c '.[]' {path} > records.jsonl"
        )
    if start == b"{":
        raise InputError(
            f"{path!r} holds JSON spread over several lines; one JSON object per line was expected. "
            f"Convert it, for instance with: jq -c . {path} > records.jsonl"
        )


def parse_line(number: int, raw: bytes) -> Any | BadRecord:
    """Return the JSON value on a line, or a BadRecord that says why there is none."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as exc:
        return BadRecord(number, f"Not valid UTF-8: {exc.reason} at byte {exc.start} of the line.")
    try:
        return json.loads(text.rstrip("\r\n"))
    except json.JSONDecodeError as exc:
        return BadRecord(number, f"Not valid JSON: {exc.msg.removesuffix(' at')} at column {exc.colno}.")
    except (ValueError, RecursionError) as exc:
        return BadRecord(number, f"Not usable JSON: {exc}.")


def _parse(number: int, raw: bytes) -> Example | BadRecord:
    record = parse_line(number, raw)
    if isinstance(record, BadRecord):
        return record
    try:
        example = Example.from_dict(record)
        if example.id is None:
            return replace(example, id=f"line-{number}")
        check_text("id", example.id)
        return example
    except InputError as exc:
        return BadRecord(number, str(exc), readable_id(record))


def readable_id(record: object) -> str | None:
    """Return the identifier of a record that may be anything, as text that can be written; ``None`` if it has none."""
    try:
        found = as_text("id", record.get("id")) if isinstance(record, Mapping) else None
    except InputError:
        return None
    return None if found is None else found.encode("utf-8", "replace").decode()
