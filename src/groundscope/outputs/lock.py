"""One writer at a time for an output that may be several files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from groundscope.errors import InputError, PrerequisiteError


@contextlib.contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Keep other processes from writing the same file or folder meanwhile, under whatever name.

    Raises:
        InputError: If another one is writing it.
        PrerequisiteError: If the lock file beside it cannot be made.
    """
    place = Path(os.path.realpath(path))
    lock = FileLock(f"{place}.lock", timeout=0)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        if not Path(lock.lock_file).exists():  # some systems refuse a file by saying that it is held
            raise PrerequisiteError(f"The lock file {lock.lock_file!r} cannot be made. Choose another -o.") from None
        raise InputError(f"Another run is writing {str(path)!r}. Wait for it, or choose another -o.") from None
    except OSError as exc:
        raise PrerequisiteError(
            f"The lock file {lock.lock_file!r} cannot be made: {exc.strerror or exc}. "
            "Remove what is in its place, or choose another -o."
        ) from exc
    try:
        yield
    finally:
        # Removed while still held: FileLock notices a lock file that is gone and takes a new one.
        with contextlib.suppress(OSError):
            Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()
