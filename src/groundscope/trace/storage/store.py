"""Traces on disk: Parquet shards that every detector can learn from, so that a model reads each answer once.

A store is a folder with ``store.json`` and ``part-NNNNN.parquet``. Signals per head are float16, all others
float32. Shards appear whole or not at all, and tell whether they were changed since (``seal.py``); a run that was
interrupted goes on where it stopped.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from groundscope.errors import InputError, MismatchError, PrerequisiteError
from groundscope.outputs.places import FolderKind
from groundscope.outputs.writing import replace_text
from groundscope.trace.storage.shard import (
    FORMAT,
    READABLE,
    is_sealed,
    read_shard,
    shard_ids,
    shard_signals,
    write_shard,
)
from groundscope.trace.traced import TracedExample

_log = logging.getLogger(__name__)
INDEX = "store.json"
_TEMPORARY = ".tmp"
STORE = FolderKind("trace store", INDEX, leftovers=(f"*{_TEMPORARY}",), resumes=True)
# Values in one shard: small enough to be in memory twice, large enough to compress and to read fast.
_SHARD_VALUES = 32_000_000
_SHARD_EXAMPLES = 256
# What a run that is killed may lose.
_SHARD_SECONDS = 300.0


class TraceStore:
    """A finished store, opened for reading.

    Args:
        folder: Where it is.

    Raises:
        InputError: If there is no store, or it is unfinished or damaged.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._index = read_index(self.folder)
        if not self._index.get("complete"):
            raise InputError(
                f"The trace store {str(folder)!r} is not finished. Run the same 'groundscope extract' again to go on."
            )

    def __len__(self) -> int:
        return int(self._index["examples"])

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals in it."""
        return tuple(self._index["signals"])

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What the traces were read by."""
        return dict(self._index["settings"]["fingerprint"])

    @property
    def chunking(self) -> str | None:
        """How text was cut into chunks, in words; ``None`` if it was not."""
        value = self._index["settings"].get("chunking")
        return None if value is None else str(value)

    @property
    def unread(self) -> list[dict[str, Any]]:
        """Examples that have no trace, and why."""
        return list(self._index["unread"])

    def unread_within(self, limit: int | None) -> list[dict[str, Any]]:
        """Return those among the first so many records of the data that the store was made from."""
        return [item for item in self.unread if limit is None or item.get("number", 0) < limit]

    @property
    def asked(self) -> dict[str, Any]:
        """What was asked for when it was made, as far as that was noted."""
        return dict(self._index.get("asked") or {})

    def is_whole(self) -> bool:
        """Whether all that was written is there.

        Raises:
            InputError: If what is there is damaged.
        """
        paths = shards(self.folder)
        if sum(len(shard_ids(path, self.fingerprint)) for path in paths) != len(self):
            return False
        self.read(())
        return True

    def check_signals(self, names: Iterable[str]) -> None:
        """Refuse to be read for signals that are not there.

        Raises:
            InputError: If one is not.
        """
        missing = [name for name in names if name not in self.signals]
        if missing:
            raise InputError(
                f"The trace store {str(self.folder)!r} lacks the signals {', '.join(missing)}. Extract again with the "
                "--detector that reads them, or with --signal."
            )

    def read(self, signals: Iterable[str] | None = None, limit: int | None = None) -> list[TracedExample]:
        """Return the examples in the order of extraction, with some of the signals.

        Args:
            signals: Names; all if ``None``. What is not asked for is not loaded.
            limit: Only those among the first so many records of the data that the store was made from: as many
                as reading these records would give, so fewer where some of them have no trace.

        Raises:
            InputError: If a signal is not in the store, or a shard is missing, damaged or there twice.
        """
        wanted = self.signals if signals is None else tuple(dict.fromkeys(signals))
        self.check_signals(wanted)
        found: list[tuple[int, TracedExample]] = []
        known: set[str | None] = set()
        if wanted and not all(is_sealed(path) for path in shards(self.folder)):
            _log.warning(
                "The trace store %r is of an earlier version: whether it was changed since cannot be told. Extract "
                "again to be sure.",
                str(self.folder),
            )
        for path in shards(self.folder):
            part = read_shard(path, wanted, self.fingerprint)
            ids = [item.example.id for _, item in part]
            twice = known.intersection(ids) - {None}
            if twice:
                raise InputError(
                    f"The shard {str(path)!r} holds examples that an earlier shard holds too, for instance "
                    f"{min(map(str, twice))!r}. Remove it and extract again."
                )
            known.update(ids)
            found += part
        if len(found) != len(self):
            raise InputError(
                f"The trace store {str(self.folder)!r} was finished with {len(self)} examples and holds {len(found)}. "
                "Run the same 'groundscope extract' again to put in order what was removed or added."
            )
        if len({number for number, _ in found}) < len(found):
            raise InputError(
                f"The trace store {str(self.folder)!r} is damaged: two examples have one place. Extract again."
            )
        found.sort(key=lambda pair: pair[0])
        return [item for number, item in found if limit is None or number < limit]


class TraceWriter:
    """Writes a store shard by shard; entering resumes what an earlier run with the same settings left.

    Args:
        folder: Where to.
        settings: Whatever decides what the traces are; plain JSON values. Holds ``fingerprint``.
        overwrite: Whether to discard what is there.
        asked: What was asked for, as far as it is known without the model; plain JSON values.

    Raises:
        InputError: If the folder holds something else, or a store made with other settings.

    Attributes:
        finished: Ids of the examples that are in the store already.
    """

    def __init__(
        self,
        folder: str | Path,
        settings: Mapping[str, Any],
        *,
        overwrite: bool = False,
        asked: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.asked = asked
        self.settings = json.loads(json.dumps(settings))
        self._rows: list[tuple[int, TracedExample]] = []
        self._values = 0
        self._last = time.monotonic()
        self.finished: set[str] = set()
        STORE.check(self.folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # Left by a run that was killed: of those that write, one at a time is let in.
            for pattern in (f"{INDEX}.*{_TEMPORARY}", f"part-*{_TEMPORARY}"):
                for path in self.folder.glob(pattern):
                    path.unlink(missing_ok=True)
            if overwrite:
                for path in [*shards(self.folder), self.folder / INDEX]:
                    path.unlink(missing_ok=True)
            if (self.folder / INDEX).exists():
                self._check_same(read_index(self.folder)["settings"])
            else:
                self._write_index([], complete=False)
        except OSError as exc:
            raise PrerequisiteError(f"{str(self.folder)!r} cannot be written: {exc.strerror}.") from exc
        for path in shards(self.folder):
            self.finished.update(shard_ids(path, self.settings["fingerprint"]))

    def _check_same(self, there: Mapping[str, Any]) -> None:
        other = [name for name in sorted({*there, *self.settings}) if there.get(name) != self.settings.get(name)]
        if other:
            raise MismatchError(
                f"The trace store {str(self.folder)!r} was made with other settings ({', '.join(other)}). "
                "Choose another folder, or pass --overwrite."
            )

    def write(self, number: int, item: TracedExample) -> None:
        """Add one example; it is on disk once its shard is full.

        Args:
            number: Its place in the input, counting every record.
            item: The example and its trace.
        """
        self._rows.append((number, item))
        self._values += sum(array.size for array in item.trace.signals.values())
        full = self._values >= _SHARD_VALUES or len(self._rows) >= _SHARD_EXAMPLES
        if full or time.monotonic() - self._last > _SHARD_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what waits as a shard."""
        if not self._rows:
            return
        taken = [int(path.stem.removeprefix("part-")) for path in shards(self.folder)]
        path = self.folder / f"part-{max(taken, default=-1) + 1:05d}.parquet"
        try:
            write_shard(path, self._rows, self.settings["fingerprint"])
        except OSError as exc:
            raise PrerequisiteError(
                f"{str(path)!r} cannot be written: {exc.strerror or exc}. Shards before it are whole; make room and "
                "run the same command again."
            ) from exc
        self._rows, self._values, self._last = [], 0, time.monotonic()

    def finish(self, unread: Sequence[Mapping[str, Any]]) -> None:
        """Write the last shard and mark the store as whole.

        Args:
            unread: Examples without a trace, why, and their ``number``; plain JSON values.
        """
        self.flush()
        self._write_index(unread, complete=True)

    def _write_index(self, unread: Sequence[Mapping[str, Any]], *, complete: bool) -> None:
        paths = shards(self.folder)
        first = next(iter(shard_signals(path) for path in paths), [])
        record = {
            "format": FORMAT,
            "complete": complete,
            "examples": sum(len(shard_ids(path, self.settings["fingerprint"])) for path in paths),
            "signals": first,
            "settings": self.settings,
            "unread": [dict(item) for item in unread],
        } | ({} if self.asked is None else {"asked": dict(self.asked)})
        replace_text(self.folder / INDEX, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def is_store(path: str | Path) -> bool:
    """Whether a path is a trace store, finished or not."""
    return STORE.is_here(path)


def read_index(folder: Path) -> dict[str, Any]:
    """Return what stands in ``store.json``.

    Raises:
        InputError: If there is none, or it cannot be understood.
    """
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as exc:
        raise InputError(f"{str(folder)!r} is no trace store: {INDEX} is missing or damaged.") from exc
    if not isinstance(index, dict) or index.get("format") not in READABLE:
        raise InputError(
            f"{str(folder)!r} is no trace store that this version of groundscope reads. Extract to another folder."
        )
    settings, signals, unread = (index.get(name) for name in ("settings", "signals", "unread"))
    if (
        not (isinstance(settings, dict) and isinstance(settings.get("fingerprint"), dict))
        or not (isinstance(signals, list) and all(isinstance(name, str) for name in signals))
        or not (isinstance(unread, list) and all(map(_is_unread, unread)))
        or not isinstance(index.get("asked", {}), dict)
        or type(index.get("examples")) is not int
        or type(index.get("complete")) is not bool
    ):
        raise InputError(f"{str(folder)!r} is no trace store: its {INDEX} is damaged. Extract to another folder.")
    return index


def _is_unread(item: object) -> bool:
    if not isinstance(item, dict) or type(item.get("number", 0)) is not int:
        return False
    return isinstance(item.get("outcome"), str) and isinstance(item.get("message"), str)


def shards(folder: Path) -> list[Path]:
    """Return the shards of a store, in order."""
    return sorted(path for path in folder.glob("part-*.parquet") if re.fullmatch(r"part-\d+", path.stem))
