"""Write records so that a run can stop at any moment and go on later: resumed, complete, or refused.

While a run is going, its records stand in ``NAME.partial``, one whole JSON line per finished record; only a
finished run has the final name. ``NAME.run.json`` beside it says with which settings the records were made,
so that a later run resumes only what it would have made itself.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeVar

from groundscope.errors import InputError, PrerequisiteError
from groundscope.outputs.lock import only_writer
from groundscope.outputs.places import PARTIAL, RUN, START_AGAIN, check_file_place
from groundscope.outputs.writing import replace_text, replaced

if TYPE_CHECKING:
    from typing_extensions import Self

_Read = TypeVar("_Read")
RunState = Literal["new", "partial", "complete"]


@dataclass(frozen=True)
class FinishedRecord:
    """What a resumed run needs to know of a record that is done."""

    outcome: str
    flagged: bool | None


def partial_path(path: str | Path) -> Path:
    """Return where the records of an unfinished run stand."""
    return Path(f"{path}{PARTIAL}")


def run_path(path: str | Path) -> Path:
    """Return where the settings of the run that makes ``path`` stand."""
    return Path(f"{path}{RUN}")


def finished_records(
    path: str | Path, read: Callable[[Mapping[str, Any]], object] | None = None
) -> dict[str, FinishedRecord]:
    """Return the records that an unfinished run has done, by id; a half last line (a crash) is cut off.

    Args:
        path: The ``.partial`` file; a missing one holds nothing.
        read: Reads a record, and raises where it is damaged.

    Raises:
        InputError: If the file holds something other than whole records of such a run.
    """
    path = Path(path)
    if not path.exists():
        return {}
    _cut_unfinished_line(path)
    finished = {}
    for number, record in run_records(path):
        identifier, outcome, flagged = (record.get(name) for name in ("id", "outcome", "flagged"))
        if not (isinstance(identifier, str) and isinstance(outcome, str) and isinstance(flagged, bool | None)):
            raise InputError(f"{path}, line {number} is not what a run wrote. {START_AGAIN}")
        if read is not None:
            with _damaged(f"{path}, line {number}"):
                read(record)
        finished[identifier] = FinishedRecord(outcome, flagged)
    return finished


def run_state(path: str | Path, settings: Mapping[str, Any]) -> RunState:
    """Tell whether a run with these settings would start, resume or find its work done.

    Args:
        path: The final name of the output.
        settings: Whatever decides what the records say; plain JSON values.

    Raises:
        InputError: If the output exists and was made with other settings, or not by a run at all.
    """
    state: RunState = "new"
    if partial_path(path).exists():
        state = "partial"
    elif Path(path).exists():
        state = "complete"
    if state == "new":
        return state
    there = recorded_run(path).get("settings")
    if not isinstance(there, dict):
        raise InputError(f"{str(path)!r} exists, and no {run_path(path).name} tells how it was made. {START_AGAIN}")
    other = [
        f"{name} was {there.get(name)!r}, is {settings.get(name)!r}"
        for name in sorted({*there, *settings})
        if there.get(name) != settings.get(name)
    ]
    if other:
        raise InputError(f"{str(path)!r} was made with other settings ({'; '.join(other)}). {START_AGAIN}")
    if state == "complete" and recorded_run(path).get("bytes") not in (None, Path(path).stat().st_size):
        raise InputError(f"{str(path)!r} has changed since it was finished. {START_AGAIN}")
    return state


def recorded_summary(path: str | Path, read: Callable[[Any], _Read]) -> _Read:
    """Return the summary of a finished run, read from the side file of its output.

    Args:
        path: The output.
        read: Reads what :meth:`RunWriter.finish` was given.

    Raises:
        InputError: If the side file does not hold such a summary.
    """
    with _damaged(str(run_path(path))):
        return read(recorded_run(path)["summary"])


def summary_if_complete(path: str | Path, settings: Mapping[str, Any], read: Callable[[Any], _Read]) -> _Read | None:
    """Return the summary of a run with these settings that is finished; ``None`` if there is work to do.

    Raises:
        InputError: If the output exists and was made with other settings, was changed, or has no such summary.
    """
    return recorded_summary(path, read) if run_state(path, settings) == "complete" else None


@contextlib.contextmanager
def _damaged(what: str) -> Iterator[None]:
    """Tell any error of reading as damage."""
    try:
        yield
    except (InputError, KeyError, TypeError, ValueError, AttributeError) as exc:
        raise InputError(f"{what} is damaged ({type(exc).__name__}: {exc}). {START_AGAIN}") from exc


def recorded_run(path: str | Path) -> dict[str, Any]:
    """Return what stands in the side file of an output, or nothing if there is none that can be read."""
    try:
        record = json.loads(run_path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


class RunWriter:
    """Append records to ``path.partial`` and rename it to ``path`` at the end. A context manager.

    Entering resumes what an earlier run with the same settings left (:func:`run_state` is asked again, under
    a lock). Leaving without :meth:`finish` keeps the partial file.

    Args:
        path: The final name of the output.
        settings: Whatever decides what the records say; plain JSON values.
        overwrite: Whether to discard what an earlier run made.
        read: Reads a record that an earlier run wrote, and raises where it is damaged.

    Attributes:
        finished: The records that an earlier run has done, by id.
    """

    def __init__(
        self,
        path: str | Path,
        settings: Mapping[str, Any],
        *,
        overwrite: bool = False,
        read: Callable[[Mapping[str, Any]], object] | None = None,
    ) -> None:
        self.path = Path(path)
        self._read = read
        self.settings = settings
        self.overwrite = overwrite
        self.finished: dict[str, FinishedRecord] = {}
        self._held = contextlib.ExitStack()
        self._stream: BinaryIO | None = None

    def __enter__(self) -> Self:
        """Take the lock, resume or start.

        Raises:
            InputError: If another process writes the same output, it was made with other settings, or its
                folder does not exist.
            PrerequisiteError: If the output or its lock cannot be written.
        """
        check_file_place(self.path)
        self._held.enter_context(only_writer(self.path))
        try:
            if self.overwrite:
                for old in (self.path, partial_path(self.path), run_path(self.path)):
                    old.unlink(missing_ok=True)
            if run_state(self.path, self.settings) == "complete":
                raise InputError(f"{str(self.path)!r} is complete already. {START_AGAIN}")
            self.finished = finished_records(partial_path(self.path), self._read)
            self._record_run(None)
            self._stream = partial_path(self.path).open("ab")
        except OSError as exc:
            self._held.close()
            raise PrerequisiteError(f"{str(self.path)!r} cannot be written: {exc.strerror}.") from exc
        except BaseException:
            self._held.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file and give the lock back."""
        if self._stream is not None:
            self._stream.close()
        self._held.close()

    def write_record(self, record: Mapping[str, Any]) -> None:
        """Append one record, which has an ``id`` and an ``outcome``, and hand it to the operating system at once.

        Raises:
            PrerequisiteError: If the disk is full or gone; what was written before stays.
        """
        if self._stream is None:
            name = type(self).__name__
            raise InputError(f"A {name} must be entered ('with {name}(...) as writer') before write().")
        line = json.dumps(record, ensure_ascii=False, allow_nan=False)
        try:
            self._stream.write(line.encode("utf-8") + b"\n")
            self._stream.flush()
        except OSError as exc:
            with contextlib.suppress(OSError):
                self._stream.close()
            self._stream = None
            raise PrerequisiteError(
                f"Writing {str(partial_path(self.path))!r} failed: {exc.strerror}. "
                "The records finished before are in it; make room and run the same command again."
            ) from exc

    def finish(self, summary: Mapping[str, Any], render: Callable[[Path, Path], None] | None = None) -> None:
        """Give the output its final name and note the summary of the run beside it.

        Args:
            summary: What to remember of the run; plain JSON values.
            render: Makes what the output is to hold, where that is not the records line by line; told where these
                stand and where to write.

        Raises:
            PrerequisiteError: If the disk is full or gone; the records stay.
        """
        if self._stream is None:
            name = type(self).__name__
            raise InputError(f"A {name} must be entered ('with {name}(...) as writer') before finish().")
        partial = partial_path(self.path)
        os.fsync(self._stream.fileno())
        self._stream.close()
        self._stream = None
        try:
            # The summary comes before the final name exists: what is complete always has it.
            if render is None:
                self._record_run(summary, partial.stat().st_size)
                partial.replace(self.path)
                return
            with replaced(self.path) as made:
                render(partial, made)
                self._record_run(summary, made.stat().st_size)
            partial.unlink()
        except OSError as exc:
            raise PrerequisiteError(
                f"{str(self.path)!r} cannot be written: {exc.strerror or exc}. What is done is in {str(partial)!r}; "
                "make room and run the same command again."
            ) from exc

    def _record_run(self, summary: Mapping[str, Any] | None, size: int | None = None) -> None:
        record: dict[str, Any] = {"settings": dict(self.settings)}
        if summary is not None:
            record |= {"summary": dict(summary), "bytes": size}
        replace_text(run_path(self.path), json.dumps(record, ensure_ascii=False, indent=2) + "\n")


def run_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, record) of a file that a :class:`RunWriter` writes or wrote.

    Raises:
        InputError: If a line is not a JSON object.
    """
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, start=1):
            try:
                record = json.loads(raw)
            except ValueError as exc:
                raise InputError(f"{path}, line {number} is not valid JSON. {START_AGAIN}") from exc
            if not isinstance(record, dict):
                raise InputError(f"{path}, line {number} is not a record. {START_AGAIN}")
            yield number, record


def _cut_unfinished_line(path: Path) -> None:
    with path.open("r+b") as stream:
        end = stream.seek(0, os.SEEK_END)
        keep = end
        while keep:
            start = max(0, keep - (1 << 16))
            stream.seek(start)
            newline = stream.read(keep - start).rfind(b"\n")
            if newline >= 0:
                keep = start + newline + 1
                break
            keep = start
        if keep != end:
            stream.truncate(keep)
