"""The cache folder: where it is, and how a folder gets into it whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from groundscope.errors import GroundscopeError, ModelFetchError, PrerequisiteError

CACHE_VARIABLE = "GROUNDSCOPE_CACHE"

Notify = Callable[[str], None]


def cache_dir() -> Path:
    """Return the absolute path of groundscope's cache folder; it need not exist.

    It is ``GROUNDSCOPE_CACHE`` if set, else ``groundscope`` inside ``XDG_CACHE_HOME`` if that is an absolute
    path, else ``~/.cache/groundscope``.

    Raises:
        PrerequisiteError: If none of these can be worked out, as in a container without a home folder, or if
            the system takes no such path.
    """
    folder = _configured_dir()
    try:
        folder.lstat()
    except OSError as exc:
        if exc.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            raise PrerequisiteError(
                f"The cache folder {folder} cannot be used ({exc.strerror}). "
                f"Set {CACHE_VARIABLE} to a folder that you may write to."
            ) from exc
    return folder


def _configured_dir() -> Path:
    try:
        given = os.environ.get(CACHE_VARIABLE)
        if given:
            return Path(given).expanduser().absolute()
        xdg = os.environ.get("XDG_CACHE_HOME")
        if xdg and Path(xdg).is_absolute():
            return Path(xdg) / "groundscope"
        return (Path.home() / ".cache" / "groundscope").absolute()
    except (RuntimeError, OSError) as exc:
        raise PrerequisiteError(
            f"There is no cache folder: the home folder is unknown ({exc}). "
            f"Set {CACHE_VARIABLE} to a folder that you may write to."
        ) from exc


def make_folder(folder: Path) -> Path:
    """Create ``folder`` and its parents if needed, and return it.

    Raises:
        PrerequisiteError: If it cannot be created or is no folder.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise PrerequisiteError(
            f"The cache folder {folder} cannot be created ({_reason(exc)}). "
            f"Set {CACHE_VARIABLE} to a folder that you may write to."
        ) from exc
    return folder


def require_space(folder: Path, needed: int) -> None:
    """Refuse to start when the disk that holds ``folder`` has fewer than ``needed`` bytes free.

    Raises:
        ModelFetchError: With both numbers.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelFetchError(
            f"{format_bytes(needed)} of free disk space are needed in {folder}, "
            f"{format_bytes(free)} are left. Free some space, or set {CACHE_VARIABLE} to a folder on a "
            "larger disk."
        )


@contextmanager
def storage_errors(folder: Path, needed: int) -> Iterator[None]:
    """Turn what a disk may answer inside the block into a message that says what to do.

    Args:
        folder: Where the block writes.
        needed: Bytes that it needs, for the message.

    Raises:
        ModelFetchError: In place of an ``OSError``, or of another library's error about a full disk.
    """
    try:
        yield
    except GroundscopeError:
        raise
    except Exception as exc:
        if is_disk_full(exc):
            raise ModelFetchError(
                f"The disk that holds {folder} is full; {format_bytes(needed)} are needed there. "
                f"Free some space, or set {CACHE_VARIABLE} to a folder on a larger disk. Nothing was kept."
            ) from exc
        if isinstance(exc, OSError):
            raise ModelFetchError(
                f"The cache folder {folder} cannot be used ({_reason(exc)}). "
                f"Set {CACHE_VARIABLE} to a folder that you may write to. Nothing was kept."
            ) from exc
        raise


def is_disk_full(error: BaseException) -> bool:
    """Tell whether an error means "no space" or "quota exceeded".

    safetensors reports the operating system's number in its message only.
    """
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return any(f"(os error {number})" in str(error) for number in (errno.ENOSPC, errno.EDQUOT))


@contextmanager
def exclusive(lock_file: Path, notify: Notify) -> Iterator[None]:
    """Hold a lock between processes for the length of the block; the lock of a dead process is free.

    Args:
        lock_file: Its folder must exist.
        notify: Told once if another process holds the lock.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(lock_file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        notify(f"Waiting for another process that prepares the same model (lock {lock_file}) ...")
        lock.acquire(poll_interval=0.2)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Give an empty work folder beside ``target``; what the block leaves in its ``new`` becomes ``target``.

    ``target`` is replaced only when the block ends without an error; whatever else it left is removed, and
    so is what a killed run left. The caller holds the lock of ``target``.

    Yields:
        The work folder, with an empty folder ``new`` in it.
    """
    discard_partial(target)
    work = _partial(target)
    try:
        (work / "new").mkdir(parents=True)
        yield work
        _flush(work / "new")
        if target.exists():
            target.replace(work / "old")
        (work / "new").replace(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def discard_partial(target: Path) -> bool:
    """Remove what a killed run left beside ``target`` (under its lock); tell whether there was any."""
    work = _partial(target)
    if not work.exists():
        return False
    shutil.rmtree(work)
    return True


def folder_size(folder: Path) -> int:
    """Return the bytes in the files of ``folder`` and below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def format_bytes(count: int) -> str:
    """Write a number of bytes for people, in decimal units."""
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _partial(target: Path) -> Path:
    return target.parent / f".{target.name}.partial"


def _flush(folder: Path) -> None:
    """Make the files durable before their folder gets its final name, readable as new files usually are."""
    # safetensors creates files for the owner alone; a cache filled by another user must stay readable.
    probe = folder / ".mode"
    probe.touch()
    mode = stat.S_IMODE(probe.stat().st_mode)
    probe.unlink()
    for path in folder.iterdir():
        path.chmod(mode)
        with path.open("rb+") as file:
            os.fsync(file.fileno())


def _reason(error: OSError) -> str:
    where = f": {error.filename}" if error.filename else ""
    return f"{error.strerror or error}{where}"
