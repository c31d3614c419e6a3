"""Label Studio's JSON export: answers in which people marked stretches.

An array of tasks (or one task per line): ``id``, ``data`` (the fields that were imported) and ``annotations`` (once
``completions``), each with ``result``, a list of regions whose ``value`` has ``start``, ``end``, ``text`` and
``labels`` (for HyperText the offsets stand in ``globalOffsets``). Line breaks in ``text`` are written as a
backslash and an n.

Offsets are code points since release 1.6 and were UTF-16 units before (HumanSignal/label-studio issues 1008 and
1347), which differ behind an emoji. Which they are is found by comparing with ``text``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from groundscope.data.jsonl import BadRecord
from groundscope.data.loaders.objects import convert_files
from groundscope.errors import InputError
from groundscope.example import Example, Label, as_text

_RESPONSES = ("response", "answer", "output", "text")
_CONTEXTS = ("context", "passages", "document", "documents", "source", "knowledge")
_QUESTIONS = ("question", "query", "instruction", "prompt")
_TEXT_FIELDS = ("dataset", "task", "model", "split", "source_id", "license")


def is_label_studio(record: Mapping[str, Any]) -> bool:
    """Whether a record is a task of an export."""
    return isinstance(record.get("data"), Mapping) and bool({"annotations", "completions"} & record.keys())


def read_label_studio(paths: Sequence[Path]) -> Iterator[Example | BadRecord]:
    """Yield one example per task.

    The response is the field ``response``, ``answer``, ``output`` or ``text`` of ``data``. Where several people
    annotated a task, a character is labelled if more than half of them marked it. Cancelled annotations do not
    count; a task without any other stays unlabelled.
    """
    return convert_files(paths, _convert)


def code_points(text: str, start: int, end: int, marked: str | None) -> tuple[int, int]:
    """Return offsets as code points, whichever unit they were counted in.

    Args:
        text: What was annotated.
        start: First unit.
        end: One past the last.
        marked: The text between them, if it is known.

    Raises:
        InputError: If neither reading gives the text, or both are possible and differ.
    """
    readings = {(start, end)} if 0 <= start < end <= len(text) else set()
    units = text.encode("utf-16-le", "surrogatepass")
    if 0 <= start < end <= len(units) // 2:
        before, inside = units[: 2 * start], units[2 * start : 2 * end]
        try:
            first = len(before.decode("utf-16-le"))
            readings.add((first, first + len(inside.decode("utf-16-le"))))
        except UnicodeDecodeError:
            pass  # an offset inside an emoji: not UTF-16 units
    if marked is not None:
        wanted = {marked, marked.replace("\\n", "\n"), marked.replace("\\r\\n", "\r\n")}
        readings = {(a, b) for a, b in readings if text[a:b] in wanted}
    if len(readings) != 1:
        state = "could be code points or UTF-16 units" if readings else "do not enclose its text"
        raise InputError(f"The offsets {start} to {end} of a region {state} ({marked!r}), so its place is not known.")
    return readings.pop()


def _convert(path: Path, number: int, record: Mapping[str, Any]) -> Iterable[Example]:
    if not is_label_studio(record):
        raise InputError("A task of a Label Studio export has 'data' and 'annotations'; choose the export type JSON.")
    data = record["data"]
    name = next((name for name in _RESPONSES if isinstance(data.get(name), str)), None)
    if name is None:
        raise InputError(f"'data' must hold the text in one of {', '.join(_RESPONSES)}. Got {sorted(data)} instead.")
    response = data[name]
    annotations = record.get("annotations", record.get("completions")) or ()
    valid = [item for item in annotations if isinstance(item, Mapping) and not item.get("was_cancelled")]
    marks = [_regions(item, name, response) for item in valid]
    labels = _majority(marks, len(response)) if marks else None
    context = next((data[key] for key in _CONTEXTS if key in data), ())
    extra: dict[str, Any] = {"annotators": len(marks)} if len(marks) > 1 else {}
    yield Example(
        question=next((data[key] for key in _QUESTIONS if isinstance(data.get(key), str)), ""),
        passages=context,
        response=response,
        labels=labels,
        hallucinated=None if labels is None else bool(labels),
        id=as_text("id", data.get("id", record.get("id", f"line-{number}"))),
        label_kind=None if labels is None else "span",
        extra=extra,
        **{key: as_text(key, data.get(key)) for key in _TEXT_FIELDS},
    )


def _regions(annotation: Mapping[str, Any], name: str, response: str) -> list[Label]:
    """Return what one person marked in the response; regions of other fields and of other kinds are left out."""
    regions = [item for item in annotation.get("result") or () if isinstance(item, Mapping)]
    regions = [item for item in regions if isinstance(item.get("value"), Mapping) and "start" in item["value"]]
    if any(item.get("to_name") == name for item in regions):
        regions = [item for item in regions if item.get("to_name") == name]
    return [_label(item["value"], response) for item in regions]


def _label(value: Mapping[str, Any], response: str) -> Label:
    offsets = value.get("globalOffsets")
    place = offsets if isinstance(offsets, Mapping) else value
    try:
        start, end = int(place["start"]), int(place["end"])
    except (KeyError, TypeError, ValueError):
        raise InputError(f"A region must have whole numbers 'start' and 'end'. Got {place!r} instead.") from None
    marked = value.get("text")
    names = next((item for key in ("labels", "hypertextlabels") if isinstance(item := value.get(key), list)), [])
    start, end = code_points(response, start, end, marked if isinstance(marked, str) else None)
    return Label(start, end, ", ".join(map(str, names)))


def _majority(marks: Sequence[Sequence[Label]], length: int) -> tuple[Label, ...]:
    if len(marks) == 1:
        return tuple(sorted(marks[0], key=lambda label: (label.start, label.end)))
    votes, types = [0] * length, [Counter[str]() for _ in range(length)]
    for person in marks:
        for position in {place for label in person for place in range(label.start, label.end)}:
            votes[position] += 1
        for label in person:
            for position in range(label.start, label.end):
                types[position][label.type] += 1
    agreed = [2 * count > len(marks) for count in votes]
    labels = []
    start = 0
    for position in range(1, length + 1):
        if position == length or agreed[position] != agreed[start]:
            if agreed[start]:
                labels.append(Label(start, position, sum(types[start:position], Counter()).most_common(1)[0][0]))
            start = position
    return tuple(labels)
