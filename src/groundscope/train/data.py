"""Labelled data from a file of records or a trace store, ready to learn from or to be measured on."""

from __future__ import annotations

import itertools
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groundscope.data.checking.intact import check_intact
from groundscope.data.jsonl import BadRecord, read_records
from groundscope.detectors.base import Detector
from groundscope.errors import InputError
from groundscope.example import Example
from groundscope.learn.labels import kind_of
from groundscope.trace.traced import TracedExample

if TYPE_CHECKING:
    from groundscope.lm.language_model import LanguageModel
    from groundscope.reading import Reader, Unread
    from groundscope.trace.storage.store import TraceStore

# As in scoring a file: random documents come from the contexts of the first so many records.
OTHERS = 256
_log = logging.getLogger(__name__)
Progress = Callable[[Iterable[Example], int], Iterable[Example]]


@dataclass(frozen=True)
class ReadingOptions:
    """How a model is loaded and reads; plain values, so that they can be compared and written down.

    Attributes:
        model: Embedded name, hub id, folder or GGUF file; ``None`` for the default.
        device: Where it runs; ``None`` for the best there is.
        dtype: Type of its weights; ``None`` for the default of the device.
        template: File of the prompt template, if not the built-in one.
        batch_size: Examples read at once.
        seed: Decides which random documents are drawn.
    """

    model: str | None = None
    device: str | None = None
    dtype: str | None = None
    template: Path | None = None
    batch_size: int = 8
    seed: int = 0

    def language_model(self) -> LanguageModel:
        """Load the model; this is where torch is imported."""
        from groundscope.lm.language_model import LanguageModel
        from groundscope.scope import DEFAULT_MODEL

        return LanguageModel.from_pretrained(self.model or DEFAULT_MODEL, dtype=self.dtype, device=self.device)

    def reader(self, detectors: Sequence[Detector], signals: Sequence[str] = (), *, leave_out: bool = False) -> Reader:
        """Load the model and join it with what it is to read for; see :class:`groundscope.reading.Reader`."""
        from groundscope.lm.prompt.template import PromptTemplate
        from groundscope.reading import Reader

        return Reader(
            self.language_model(),
            detectors,
            signals=signals,
            template=None if self.template is None else PromptTemplate.from_file(self.template),
            batch_size=self.batch_size,
            seed=self.seed,
            fingerprint=True,
            leave_out=leave_out,
        )


@dataclass
class OpenedData:
    """Traced examples, and what did not become one.

    Attributes:
        traced: The examples.
        unread: Examples without a trace: refusals, empty or too long ones, failures.
        bad: Lines that hold no record.
        detectors: Those whose signals were read.
    """

    traced: list[TracedExample] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    bad: list[BadRecord] = field(default_factory=list)
    detectors: list[Detector] = field(default_factory=list)

    def __str__(self) -> str:
        parts = [f"{len(self.traced)} examples read"]
        parts += [f"{count} {name}" for name, count in sorted(Counter(item.outcome for item in self.unread).items())]
        if self.bad:
            parts.append(f"{len(self.bad)} lines not readable (the first: {self.bad[0].line}, {self.bad[0].error})")
        return ", ".join(parts)


@dataclass(frozen=True)
class PreparedData:
    """Examples that were looked at and not read yet.

    Attributes:
        examples: What is to be read.
        detectors: Those that the data can serve, as far as is known before a model is loaded.
        bad: Lines that hold no record.
        options: How they are read.
        leave_out: Whether detectors that the model cannot serve are left out.
        store: Where they were read to; ``None`` if they were not.
        places: Where the examples stand in the store.
        limit: Only the first so many records were looked at.
    """

    examples: list[Example]
    detectors: list[Detector]
    bad: list[BadRecord]
    options: ReadingOptions
    leave_out: bool
    store: TraceStore | None
    places: list[int]
    limit: int | None

    @property
    def readable(self) -> list[Example]:
        """The examples that claim something; some of them may still turn out to be too long."""
        from groundscope.reading import nothing_to_read

        return [example for example in self.examples if nothing_to_read(example) is None]

    def read(self, detectors: Sequence[Detector], *, progress: Progress | None = None) -> OpenedData:
        """Load the signals that a model read, or let it read them.

        Args:
            detectors: Whose signals are needed.
            progress: See :func:`open_data`.
        """
        from groundscope.reading import Unread

        if self.store is not None:
            traced = self.store.read(wanted_signals(detectors))
            without = self.store.unread_within(self.limit)
            unread = [Unread(item["outcome"], item["message"], item.get("id")) for item in without]
            return OpenedData([traced[place] for place in self.places], unread, self.bad, list(detectors))
        reader = self.options.reader(detectors, leave_out=self.leave_out)
        opened = OpenedData(bad=self.bad, detectors=list(reader.detectors))
        shown = progress(self.examples, len(self.examples)) if progress else self.examples
        for result in reader.read_many(shown, self.examples[:OTHERS]):
            if isinstance(result, TracedExample):
                opened.traced.append(result)
            else:
                opened.unread.append(result)
        return opened


def open_data(
    source: str | Path,
    detectors: Sequence[Detector],
    options: ReadingOptions | None = None,
    *,
    progress: Progress | None = None,
    limit: int | None = None,
    only_labelled: bool = True,
    leave_out: bool = False,
) -> OpenedData:
    """Return the traced examples of a trace store, or let a model read a file of records.

    :func:`prepare_data` and :meth:`PreparedData.read` do the same in two steps, between which the examples can be
    checked.

    Args:
        source: See :func:`prepare_data`; likewise the rest.
        detectors: Whose signals are needed.
        options: How a file is read; a store was read already.
        progress: Wraps the examples of a file, told their number, to show how far it is.
        limit: Only the first so many records; of a store, of the data that it was made from.
        only_labelled: Whether records that nobody labelled are left out.
        leave_out: Whether detectors whose signals are not to be had are left out, with a warning, and not refused.

    Raises:
        InputError: If there is nothing to read, or a store lacks a signal or was read by another model.
    """
    prepared = prepare_data(source, detectors, options, limit=limit, only_labelled=only_labelled, leave_out=leave_out)
    return prepared.read(prepared.detectors, progress=progress)


def prepare_data(
    source: str | Path,
    detectors: Sequence[Detector],
    options: ReadingOptions | None = None,
    *,
    limit: int | None = None,
    only_labelled: bool = True,
    leave_out: bool = False,
) -> PreparedData:
    """Look at a trace store or a file of records, before a model is loaded or signals are.

    Args:
        source: A trace store or a JSON Lines file.
        detectors: Whose signals will be needed.
        options: How a file is read; a store was read already.
        limit: Only the first so many records; of a store, of the data that it was made from.
        only_labelled: Whether records that nobody labelled are left out.
        leave_out: Whether detectors whose signals are not to be had are left out, with a warning, and not refused.

    Raises:
        InputError: If there is nothing to read, or a store lacks a signal or was read by another model.
    """
    from groundscope.trace.storage.store import INDEX, TraceStore, is_store

    options = options or ReadingOptions()
    store, bad, chosen = None, list[BadRecord](), list(detectors)
    if Path(source).is_dir() and not is_store(source):
        raise InputError(f"The folder {str(source)!r} is no trace store: it lacks {INDEX}. Extract again.")
    if is_store(source):
        store = TraceStore(source)
        if options.model not in (None, store.fingerprint["model"]):
            raise InputError(
                f"The trace store {str(source)!r} was read by {store.fingerprint['model']!r}, not by "
                f"{options.model!r}. Leave --model out, or extract again."
            )
        if leave_out:
            chosen = list(_served(store, chosen))
        for detector in chosen:
            _check_chunks(store, detector)
            _check_model(store, detector)
        store.check_signals(wanted_signals(chosen))
        found = [item.example for item in store.read((), limit)]
    else:
        found = list(records(source, bad, limit))
    kept = {id(example) for example in (labelled(found) if only_labelled else found)}
    if not kept:
        raise InputError(f"{str(source)!r} holds no usable {'labelled ' if only_labelled else ''}records.")
    places = [place for place, example in enumerate(found) if id(example) in kept]
    return PreparedData([found[place] for place in places], chosen, bad, options, leave_out, store, places, limit)


def check_one_reader(parts: Sequence[PreparedData]) -> None:
    """Refuse data that several models have read or would read, before anything is loaded.

    Raises:
        InputError: If so.
    """
    from groundscope.lm.loading.catalog import DEFAULT_MODEL

    stores = [part.store for part in parts if part.store is not None]
    files = [part.options.model or DEFAULT_MODEL for part in parts if part.store is None]
    names = [*(store.fingerprint["model"] for store in stores), *files]
    different = len({json.dumps(store.fingerprint, sort_keys=True) for store in stores}) > 1
    if different or (stores and len(set(names)) > 1):
        raise InputError(
            f"All data must be read by one model under one template. Got trace stores and files of "
            f"{', '.join(map(repr, dict.fromkeys(names)))}{' under different templates' * (len(set(names)) < 2)}; "
            "extract again with one, or name the stores' model with --model for the files."
        )


def _served(store: TraceStore, detectors: Sequence[Detector]) -> Iterator[Detector]:
    for detector in detectors:
        missing = [name for name in wanted_signals([detector]) if name not in store.signals]
        if missing:
            _log.warning("%s is left out: the trace store lacks %s.", detector.name, ", ".join(missing))
        else:
            yield detector


def _check_chunks(store: TraceStore, detector: Detector) -> None:
    if detector.chunking is not None and repr(detector.chunking) != store.chunking:
        raise InputError(
            f"The detector {detector.name!r} reads chunks of {detector.chunking!r}, and the trace store "
            f"{str(store.folder)!r} was made with {store.chunking or 'none'}. Extract again with this detector."
        )


def _check_model(store: TraceStore, detector: Detector) -> None:
    """Refuse parameters that ask for more than the store's model has; a reader does so for a file."""
    from groundscope.detectors.learnable import LearnedDetector

    made_by = store.fingerprint
    if isinstance(detector, LearnedDetector) and not detector.is_fitted and made_by.get("attention_layers"):
        detector.check_model(made_by["layers"], made_by["attention_layers"], made_by["heads"])


def wanted_signals(detectors: Sequence[Detector]) -> list[str]:
    """Return the names of all signals that detectors read or gather, once each."""
    names: list[str] = []
    for detector in detectors:
        names += [*detector.signals, *detector.own_signals]
    return list(dict.fromkeys(names))


def records(source: str | Path, bad: list[BadRecord], limit: int | None = None) -> Iterator[Example]:
    """Yield the examples of a file; lines that hold none are added to ``bad``.

    Raises:
        InputError: If the file cannot be read or is damaged, before anything is yielded.
    """
    check_intact(source)
    for record in itertools.islice(read_records(source), limit):
        if isinstance(record, BadRecord):
            bad.append(record)
            _log.warning("%s, line %d: %s", source, record.line, record.error)
        else:
            yield record


def labelled(examples: Iterable[Example]) -> Iterator[Example]:
    """Yield examples with labels of a known kind; say how many were left out."""
    without, unknown = 0, []
    for example in examples:
        if example.labels is None and example.hallucinated is None:
            without += 1
            continue
        try:
            kind_of(example)
        except InputError as exc:
            unknown.append(str(exc))
            continue
        yield example
    if without:
        _log.warning("%d records have no labels and were left out.", without)
    if unknown:
        _log.warning(
            "%d records have labels of no known kind and were left out; the first: %s", len(unknown), unknown[0]
        )


def settings_of(options: ReadingOptions, **more: Any) -> dict[str, Any]:
    """Return reading options as plain JSON values, without what does not change results."""
    return {"dtype": options.dtype, "seed": options.seed, **more}
