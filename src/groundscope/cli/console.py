"""What all commands share: where messages go and how arguments name text."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from groundscope.errors import InputError

EXIT_FLAGGED = 1
EXIT_WRONG_USE = 2
EXIT_INCOMPLETE = 3
EXIT_FAULT = 70
EXIT_INTERRUPTED = 130
EXIT_CLOSED_PIPE = 141
# One word that ends like a text file; an answer may be one, but it is more often a typing error.
_LIKE_A_PATH = re.compile(r"[^\s\0]{1,1000}\.(txt|text|md|rst|json|jsonl|html?|csv|gz)", re.IGNORECASE)


def note(message: str) -> None:
    """Say something to the person at the terminal, in one line on standard error."""
    print(f"groundscope: {' '.join(message.split())}", file=sys.stderr, flush=True)


def note_complete(output: Path) -> None:
    """Say that there is nothing left to do."""
    note(f"{str(output)!r} is already complete. Pass --overwrite to make it again.")


@contextlib.contextmanager
def resumable(done: Callable[[], str]) -> Iterator[None]:
    """Say of a run that the person stops what is done and that it can go on.

    Args:
        done: What is done by then, in words, and where it is.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; {done()}. Run the same command again to go on.") from None


def read_argument(name: str, value: str) -> str:
    """Return the text that a FILE_OR_TEXT argument stands for.

    ``-`` is standard input, ``@FILE`` a file that must exist, the path of an existing file that file,
    anything else the text itself. Files are read as UTF-8, every character kept (also line ends).

    Args:
        name: The option, for messages.
        value: What was given.

    Raises:
        InputError: If the file cannot be read or is not UTF-8.
    """
    if value == "-":
        return _decode(name, "standard input", standard_input(name).read())
    if value.startswith("@"):
        return _read_file(name, Path(value[1:]), "To give text that begins with '@', put it in a file.")
    if _is_file(value):
        return _read_file(name, Path(value), "")
    if _LIKE_A_PATH.fullmatch(value):
        note(f"{name} {value!r} is taken as text: there is no such file. '@{value}' insists on one.")
    return value


def standard_input(name: str) -> BinaryIO:
    """Return standard input, for what an argument of this name is to be read from.

    Raises:
        InputError: If the program was started without one.
    """
    if sys.stdin is None:
        raise InputError(f"{name} is to be read from standard input ('-'), which is closed.")
    return sys.stdin.buffer


def _is_file(value: str) -> bool:
    try:
        return Path(value).is_file()
    except (OSError, ValueError):  # longer than a path may be, or holding a null character: text
        return False


def _read_file(name: str, path: Path, advice: str) -> str:
    try:
        raw = path.read_bytes()
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else exc
        raise InputError(f"The file {str(path)!r} given to {name} cannot be read: {reason}. {advice}".strip()) from exc
    return _decode(name, repr(str(path)), raw)


def _decode(name: str, source: str, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise InputError(
            f"{source}, given to {name}, is not valid UTF-8: {exc.reason} at byte {exc.start}. "
            "Convert it, for instance with: iconv -f LATIN1 -t UTF-8"
        ) from exc


class NoteHandler(logging.Handler):
    """Shows what the library reports about long work (fetching a model, measuring a threshold) as notes."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message, without a level or a logger's name."""
        note(record.getMessage())


def show_library_notes() -> None:
    """Send what the library logs from INFO upwards to standard error; calling it twice changes nothing."""
    logger = logging.getLogger("groundscope")
    if not any(isinstance(handler, NoteHandler) for handler in logger.handlers):
        logger.addHandler(NoteHandler())
        logger.setLevel(logging.INFO)
        logger.propagate = False
