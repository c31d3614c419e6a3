"""One run that lets a model read a file of records into a trace store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from groundscope._version import __version__
from groundscope.data.jsonl import BadRecord, file_sha256
from groundscope.detectors.base import Detector
from groundscope.errors import InputError
from groundscope.example import Example
from groundscope.lm.loading.catalog import DEFAULT_MODEL
from groundscope.lm.loading.local import local_state
from groundscope.outputs.lock import only_writer
from groundscope.reading import Unread
from groundscope.trace.storage.store import TraceStore, TraceWriter, is_store, read_index
from groundscope.trace.traced import TracedExample
from groundscope.train.data import OTHERS, ReadingOptions, records, settings_of
from groundscope.train.progress import shown


@dataclass
class Extraction:
    """Reads a file into a store; what is in the store already is not read again.

    Attributes:
        data: The records.
        output: The store.
        detectors: Whose signals are kept.
        signals: Further signals.
        options: How the model is loaded and reads.
        limit: Only the first so many records.
        overwrite: Whether to discard what is there.
        leave_out: Whether detectors that the model cannot serve are left out, and not refused.
        was_complete: Whether there was nothing to do, so that no model was loaded.
        bad: Lines that hold no record.
        unread: Examples without a trace.
        written: Examples in the store.
    """

    data: Path
    output: Path
    detectors: Sequence[Detector]
    signals: tuple[str, ...] = ()
    options: ReadingOptions = field(default_factory=ReadingOptions)
    limit: int | None = None
    overwrite: bool = False
    leave_out: bool = False
    was_complete: bool = field(default=False, init=False)
    bad: list[BadRecord] = field(default_factory=list, init=False)
    unread: list[Unread] = field(default_factory=list, init=False)
    written: int = field(default=0, init=False)

    def execute(self) -> None:
        """Read what is missing; records on which the model failed before are tried again.

        Raises:
            InputError: If the file holds no record, or the folder holds something else or is being written.
        """
        with only_writer(self.output):
            self._execute()

    def _execute(self) -> None:
        examples: list[Example] = []
        places: dict[str | None, int] = {}
        for example in records(self.data, self.bad, self.limit):
            places[example.id] = len(examples) + len(self.bad)  # a line that holds no record has its place too
            examples.append(example)
        if not examples:
            raise InputError(f"{str(self.data)!r} holds no usable records.")
        asked = self._asked()
        if not self.overwrite and (store := self._complete(asked)) is not None:
            self.was_complete, self.written = True, len(store)
            self.unread = [Unread(item["outcome"], item["message"], item.get("id")) for item in store.unread]
            return
        reader = self.options.reader(self.detectors, self.signals, leave_out=self.leave_out)
        settings = settings_of(
            self.options,
            version=__version__,
            fingerprint=reader.fingerprint,
            signals=list(reader.signals),
            detectors=[repr(detector) for detector in reader.detectors if detector.own_signals],
            documents=reader.documents,
            chunking=None if reader.chunking is None else repr(reader.chunking),
            input_sha256=asked["input_sha256"],
            limit=self.limit,
        )
        writer = TraceWriter(self.output, settings, overwrite=self.overwrite, asked=asked)
        todo = [example for example in examples if example.id not in writer.finished]
        try:
            for result in reader.read_many(shown(todo, len(examples), len(examples) - len(todo)), examples[:OTHERS]):
                if isinstance(result, TracedExample):
                    writer.write(places[result.example.id], result)
                else:
                    self.unread.append(result)
        except BaseException:
            writer.flush()
            raise
        writer.finish([{**asdict(item), "number": places[item.id]} for item in self.unread])
        self.written = len(TraceStore(self.output))

    def _asked(self) -> dict[str, Any]:
        """All that decides what the store will be, as far as it is known without the model; plain JSON values."""
        options = self.options
        return settings_of(
            options,
            version=__version__,
            model=options.model or DEFAULT_MODEL,
            model_files=local_state(options.model),
            template_sha256=None if options.template is None else file_sha256(options.template),
            detectors=[
                [repr(made), list(made.signals), list(made.own_signals), made.documents, repr(made.chunking)]
                for made in self.detectors
            ],
            signals=list(self.signals),
            leave_out=self.leave_out,
            input_sha256=file_sha256(self.data),
            limit=self.limit,
        )

    def _complete(self, asked: dict[str, Any]) -> TraceStore | None:
        """Return the store if it is what is asked for and nothing is missing.

        Raises:
            InputError: If it is damaged.
        """
        if not is_store(self.output) or not read_index(self.output)["complete"]:
            return None
        store = TraceStore(self.output)
        if store.asked != asked or any(item["outcome"] == "failed" for item in store.unread):
            return None
        return store if store.is_whole() else None

    @property
    def incomplete(self) -> bool:
        """Whether a line or a record could not be read; what claims nothing counts as read."""
        return bool(self.bad) or any(item.outcome in ("too_long", "failed") for item in self.unread)

    def __str__(self) -> str:
        parts = [f"{self.written} traces in {str(self.output)!r}"]
        parts += [f"{count} {name}" for name, count in sorted(Counter(item.outcome for item in self.unread).items())]
        if self.bad:
            lines = ", ".join(str(record.line) for record in self.bad[:20])
            parts.append(f"{len(self.bad)} not readable (line {lines})")
        return ", ".join(parts)
