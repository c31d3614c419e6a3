"""Refuse files that hold no text, whole, before any work is done: damaged gzip, binary files, pickles."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from groundscope.data.jsonl import open_data
from groundscope.errors import InputError

_BLOCK = 1 << 16
_PICKLE = b"\x80"
_EXPECTED = "JSON Lines in UTF-8, plain or gzip, were expected."


def check_intact(path: str | Path, name: str | None = None) -> None:
    """Look at the beginning of a file, and unpack all of it if it is gzip.

    What is missing, a folder or no regular file (a pipe can be read once only) is left to whoever opens it.
    Single lines that hold no record are no reason to refuse a file.

    Args:
        path: A file of records, plain or gzip.
        name: What messages call it, where it is a copy; the path if ``None``.

    Raises:
        InputError: If it is gzip that is damaged or cut short, gzip by its name alone, a pickle or binary.
    """
    try:
        if not Path(path).is_file():
            return
    except OSError:
        return
    name = name or str(path)
    with open_data(path) as stream:
        zipped = isinstance(stream, gzip.GzipFile)
        try:
            head = stream.read(_BLOCK)
            while zipped and stream.read(_BLOCK):
                pass
        except (EOFError, gzip.BadGzipFile, zlib.error) as exc:
            reason = str(exc).rstrip(".")
            raise InputError(f"{name!r} is gzip that is damaged or cut short: {reason}. Copy the file again.") from exc
    refuse_pickle(name, head)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if name.endswith(".gz") and not zipped and text and text[:1] not in b"{[":
        raise InputError(
            f"{name!r} is no gzip, in spite of its name, and no JSON: it begins with {head[:8]!r}. {_EXPECTED} "
            "Copy the file again."
        )
    if b"\0" in head:
        raise InputError(
            f"{name!r} is a binary file, or text in UTF-16 or UTF-32. {_EXPECTED} Name another file; text can be "
            "converted, for instance with: iconv -f UTF-16 -t UTF-8"
        )


def refuse_pickle(name: str, head: bytes) -> None:
    """Refuse what begins as a pickle does.

    Raises:
        InputError: If it does.
    """
    if head.startswith(_PICKLE):
        raise InputError(
            f"{name!r} is a pickle. Reading one can run any code, so it is refused; "
            "save its content as JSON where you trust its source."
        )
