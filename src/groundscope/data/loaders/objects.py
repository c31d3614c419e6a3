"""JSON objects from JSON Lines or from one JSON array, lazily, plain or gzip."""

from __future__ import annotations

import codecs
import contextlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from groundscope.data.checking.intact import refuse_pickle
from groundscope.data.jsonl import BadRecord, numbered_lines, open_data, parse_line, readable_id
from groundscope.errors import InputError
from groundscope.example import Example

_BLOCK = 1 << 16
_LONGEST = 1 << 28  # characters of one array item: an item that never ends must not fill the memory
_BOM = "\ufeff"

Item = tuple[int, "dict[str, Any] | BadRecord"]
Convert = Callable[[Path, int, Mapping[str, Any]], Iterable[Example]]


def read_objects(path: str | Path) -> Iterator[Item]:
    """Yield (number, object) for every line of JSON Lines, or every item of a JSON array.

    A line that holds no object costs only itself. In an array, nothing can be read after an item that is
    not valid JSON; what stands before it is yielded.

    Args:
        path: A file, plain or gzip.

    Raises:
        InputError: If the file cannot be read or is a pickle.
    """
    with open_data(path) as stream:
        before, first = _first_line(stream)
        refuse_pickle(str(path), first)
        items: Iterator[tuple[int, Any | BadRecord]]
        if first.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
            items = _array_items(first, stream)
        else:
            items = ((number, _line_value(number, raw)) for number, raw in _lines(before, first, stream))
        for number, value in items:
            if isinstance(value, dict | BadRecord):
                yield number, value
            else:
                yield number, BadRecord(number, f"A record must be a JSON object. Got {type(value).__name__} instead.")


def first_object(path: str | Path) -> dict[str, Any] | None:
    """Return the first object of a file, or ``None`` if there is none among its first ten records."""
    found = (value for _, value in itertools.islice(read_objects(path), 10))
    return next((value for value in found if isinstance(value, dict)), None)


def convert_files(paths: Sequence[Path], convert: Convert) -> Iterator[Example | BadRecord]:
    """Yield what ``convert`` makes of every object of every file; what it refuses becomes a BadRecord.

    So does the second example with an id, because results are joined with their input by id.

    Args:
        paths: Files of one format, read in order.
        convert: Makes examples of (file, number of the record in it, record); raises InputError to refuse it.
    """
    seen: dict[str | None, str] = {}
    for path in paths:
        where = f"{path.name}: " if len(paths) > 1 else ""
        for number, record in read_objects(path):
            if isinstance(record, BadRecord):
                yield BadRecord(number, where + record.error, record.id)
                continue
            try:
                for example in convert(path, number, record):
                    if example.id in seen:
                        error = f"{where}The id {example.id!r} is used already {seen[example.id]}. Ids must be unique."
                        yield BadRecord(number, error, example.id)
                    else:
                        seen[example.id] = f"in record {number}" + (f" of {path.name}" if where else "")
                        yield example
            except InputError as exc:
                yield BadRecord(number, f"{where}{exc}", readable_id(record))
            except KeyError as exc:
                error = f"{where}The field {exc} is missing, which records of this format have. Is --from right?"
                yield BadRecord(number, error, readable_id(record))


def text_field(record: Mapping[str, Any], name: str) -> str:
    """Return a field that must be a string.

    Raises:
        InputError: If it is missing or something else.
    """
    value = record.get(name)
    if not isinstance(value, str):
        raise InputError(f"The field {name!r} must be a string. Got {type(value).__name__} instead.")
    return value


def flag_of(value: object) -> bool:
    """Return whether a response-level mark says "hallucinated".

    Raises:
        InputError: If it is none of the known ways to say yes or no.
    """
    if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    if isinstance(value, str):
        word = value.strip().lower()
        if word in ("1", "yes", "true", "hallucinated", "hallucination"):
            return True
        if word in ("0", "no", "false", "non-hallucinated", "not hallucinated", "faithful"):
            return False
    raise InputError(f"A response-level label must be yes or no (or 1, 0, true, false). Got {value!r} instead.")


def _first_line(stream: BinaryIO) -> tuple[int, bytes]:
    """Return how many blank lines come before the first line that is not, and that line."""
    blank = 0
    with contextlib.suppress(EOFError, OSError):  # damage is reported with its line by who reads on
        for line in stream:
            if line.strip():
                return blank, line
            blank += 1
    return blank, b""


def _lines(blank: int, first: bytes, stream: BinaryIO) -> Iterator[tuple[int, bytes | BadRecord]]:
    before = blank
    if first:
        before += 1
        yield before, first.removeprefix(codecs.BOM_UTF8)
    for number, raw in numbered_lines(stream):
        yield before + number, raw if isinstance(raw, bytes) else BadRecord(before + number, raw.error)


def _line_value(number: int, raw: bytes | BadRecord) -> Any | BadRecord:
    return raw if isinstance(raw, BadRecord) else parse_line(number, raw)


def _array_items(first: bytes, stream: BinaryIO) -> Iterator[tuple[int, Any | BadRecord]]:
    """Decode a JSON array item by item, reading on only while an item is not complete."""
    decoder = json.JSONDecoder()
    text = _Text(first, stream)
    text.skip(_BOM + " \t\r\n")
    text.take()  # the opening bracket
    for number in itertools.count(1):
        try:
            text.skip(" \t\r\n,")
            if text.take_if("]") or text.ended:
                return
            value = text.decode(decoder)
        except UnicodeEncodeError:
            value = BadRecord(number, "Not valid UTF-8.")
        except (ValueError, RecursionError, EOFError, OSError) as exc:
            reason = exc.msg if isinstance(exc, json.JSONDecodeError) else exc
            yield number, BadRecord(number, f"Not valid JSON: {reason}. Nothing after this item can be read.")
            return
        yield number, value


class _Text:
    """A stream as text of which only the part that is being looked at is kept."""

    def __init__(self, first: bytes, stream: BinaryIO) -> None:
        # Bytes that are not UTF-8 travel as lone surrogates, so that they cost one item and not the rest.
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._stream = stream
        self._kept = self._decoder.decode(first)
        self._at = 0
        self._over = False

    @property
    def ended(self) -> bool:
        return self._at >= len(self._kept) and not self._more(_BLOCK)

    def skip(self, characters: str) -> None:
        while not self.ended and self._kept[self._at] in characters:
            self._at += 1

    def take(self) -> None:
        self._at += 1

    def take_if(self, character: str) -> bool:
        found = not self.ended and self._kept[self._at] == character
        self._at += found
        return found

    def decode(self, decoder: json.JSONDecoder) -> Any:
        size = _BLOCK
        while True:
            try:
                value, end = decoder.raw_decode(self._kept, self._at)
            except json.JSONDecodeError:
                if len(self._kept) - self._at > _LONGEST or not self._more(size):
                    raise
                size = len(self._kept)  # twice as much each time, so that long items are not parsed too often
            else:
                start, self._at = self._at, end
                self._kept[start:end].encode()
                return value

    def _more(self, size: int) -> bool:
        if self._over:
            return False
        block = self._stream.read(size)
        self._over = not block
        self._kept = self._kept[self._at :] + self._decoder.decode(block, final=self._over)
        self._at = 0
        return not self._over
