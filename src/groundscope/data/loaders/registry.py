"""Which formats there are, and which one a file has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groundscope.data.checking.intact import check_intact
from groundscope.data.jsonl import STDIN, BadRecord
from groundscope.data.loaders import hallurag, halueval, label_studio, lookback_lens, plain, ragas, ragtruth
from groundscope.data.loaders.objects import first_object, read_objects
from groundscope.errors import InputError, UnknownNameError
from groundscope.example import Example

_SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz")


@dataclass(frozen=True)
class Format:
    """A format that can be read.

    Attributes:
        name: What ``--from`` calls it.
        files: Which files it consists of, in words.
        recognises: Whether a record is of this format.
        read: Yields the examples of its files.
    """

    name: str
    files: str
    recognises: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Sequence[Path]], Iterator[Example | BadRecord]]


# In the order in which they are tried: the more particular before the more general.
FORMATS = {
    form.name: form
    for form in (
        Format(
            "redeep-dolly",
            "response_dolly.jsonl, source_info_dolly.jsonl",
            ragtruth.is_dolly,
            ragtruth.read_redeep_dolly,
        ),
        Format(
            "ragtruth",
            "response.jsonl, source_info.jsonl",
            lambda record: ragtruth.is_source(record) or ragtruth.is_response(record),
            ragtruth.read_ragtruth,
        ),
        Format("hallurag", "JSON arrays", hallurag.is_hallurag, hallurag.read_hallurag),
        Format("lookback-lens", "judged JSON Lines", lookback_lens.is_lookback_lens, lookback_lens.read_lookback_lens),
        Format("halueval", "qa_data.json and the like", halueval.is_halueval, halueval.read_halueval),
        Format("label-studio", "an export of type JSON", label_studio.is_label_studio, label_studio.read_label_studio),
        Format("ragas", "JSON Lines or arrays", ragas.is_ragas, ragas.read_ragas),
        Format("groundscope", "JSON Lines", plain.is_plain, plain.read_plain),
    )
}


def read_examples(sources: Iterable[str | Path], format: str | None = None) -> Iterator[Example | BadRecord]:  # noqa: A002
    """Yield the examples of files of any known format, lazily; one bad record never costs the others.

    Args:
        sources: Files that belong together, or folders: their ``.json`` and ``.jsonl`` files, plain or gzip.
        format: A name of :data:`FORMATS`; found out from the content if ``None``.

    Raises:
        InputError: If a file cannot be read or is damaged, or its format is not known.
    """
    paths = _files(sources)
    if format is not None and format not in FORMATS:
        raise UnknownNameError("format", format, FORMATS)
    for path in ragtruth.with_sources(paths):
        check_intact(path)
    chosen = FORMATS[format] if format is not None else detect(paths)
    return chosen.read(paths)


def inputs_of(sources: Iterable[str | Path]) -> list[Path]:
    """Return every file that :func:`read_examples` reads for sources, also those that belong to a named one.

    Raises:
        InputError: If there are none, or one is standard input.
    """
    return ragtruth.with_sources(_files(sources))


def detect(paths: Sequence[Path]) -> Format:
    """Return the format of files that belong together, judged by their first records.

    Raises:
        InputError: If a file is of no known format, or they are of different ones.
    """
    found: dict[str, Path] = {}
    for path in ragtruth.with_sources(paths):
        record = first_object(path)
        if record is None:
            raise InputError(_without_object(path))
        form = next((form for form in FORMATS.values() if form.recognises(record)), None)
        if form is None:
            raise InputError(
                f"The format of {str(path)!r} is not known: its first record has the fields "
                f"{sorted(map(str, record))[:20]}. Known formats: {', '.join(FORMATS)}. "
                "A record of groundscope's own has 'response' and 'context', and 'question' where there is one."
            )
        found.setdefault(form.name, path)
    if found.keys() == {"redeep-dolly", "ragtruth"}:
        found.pop("ragtruth")  # the responses of the two look the same
    if len(found) > 1:
        listed = ", ".join(f"{str(path)!r} ({name})" for name, path in found.items())
        raise InputError(f"The files are of different formats: {listed}. Read each format on its own.")
    return FORMATS[next(iter(found))]


def _without_object(path: Path) -> str:
    first = next((value for _, value in read_objects(path)), None)
    if not isinstance(first, BadRecord):
        return f"{str(path)!r} holds no records."
    return (
        f"{str(path)!r} holds no JSON object among its first records; of the first one: {first.error} "
        "JSON Lines or an array of objects were expected."
    )


def _files(sources: Iterable[str | Path]) -> list[Path]:
    paths: list[Path] = []
    for source in map(Path, sources):
        if str(source) == STDIN:
            raise InputError("Standard input cannot be read here: files are read twice. Save it to a file first.")
        if source.is_dir():
            inside = sorted(path for path in source.iterdir() if path.name.endswith(_SUFFIXES))
            if not inside:
                raise InputError(f"The folder {str(source)!r} holds no {' or '.join(_SUFFIXES)} files.")
            paths += inside
        else:
            paths.append(source)
    if not paths:
        raise InputError("No file was named. Name at least one.")
    return paths
