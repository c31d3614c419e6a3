"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from groundscope.errors import PrerequisiteError


def temporary_suffix() -> str:
    """Return what the name of a file ends in until it is whole."""
    return f".{os.getpid()}.tmp"


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Yield where to write a file; it gets its name, and another file loses it, when all is written."""
    temporary = path.with_name(f"{path.name}{temporary_suffix()}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Write a small text file so that no reader ever sees half of it."""
    with replaced(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


@contextlib.contextmanager
def replaced_folder(folder: str | Path) -> Iterator[Path]:
    """Yield an empty folder to fill, which gets its name when all is written.

    What had the name before is gone then, and back if that fails. Of a symbolic link, what it leads to is replaced.
    Whether it may be, ``FolderKind.check`` has asked before.

    Raises:
        PrerequisiteError: If the system does not let write there.
    """
    place = Path(os.path.realpath(folder))
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
        try:
            yield temporary
            temporary.chmod(0o755)
            _put_in_place(temporary, place)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as exc:
        raise PrerequisiteError(f"{str(folder)!r} cannot be written: {exc.strerror or exc}.") from exc


def _put_in_place(made: Path, folder: Path) -> None:
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)  # left by a run that was killed between the two renames
    if not folder.exists():
        made.rename(folder)
        return
    folder.rename(old)
    try:
        made.rename(folder)
    except BaseException:
        old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)
