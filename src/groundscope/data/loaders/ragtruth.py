"""RAGTruth as its authors publish it, and ReDeEP's Dolly, which has the same two files.

RAGTruth (github.com/ParticleMedia/RAGTruth, ``dataset/``), one JSON object per line:

- ``response.jsonl``: ``id``, ``source_id``, ``model``, ``temperature``, ``labels`` (``start``, ``end``, ``text``,
  ``meta``, ``label_type``, ``implicit_true``, ``due_to_null``), ``split``, ``quality``, ``response``.
- ``source_info.jsonl``: ``source_id``, ``task_type`` (``QA``, ``Summary``, ``Data2txt``), ``source``, ``source_info``
  (``question`` and ``passages`` for QA, a string for Summary, any object for Data2txt), ``prompt``.

ReDeEP's Dolly (github.com/Jeryi-Sun/ReDEeP-ICLR) names them ``response_dolly.jsonl`` and ``source_info_dolly.jsonl``.
Its sources also hold ``human_response``; its ``labels`` say for the whole response whether it is hallucinated: a
list that is empty or not, or a word. Offsets of such labels are not used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from groundscope.data.jsonl import BadRecord
from groundscope.data.labelling.occurrences import check_label_text
from groundscope.data.loaders.objects import convert_files, first_object, flag_of, read_objects, text_field
from groundscope.errors import InputError
from groundscope.example import Example, Label, as_text

_TASKS = {"QA": "qa", "Summary": "summarization", "Data2txt": "data2text"}
_PASSAGE = re.compile(r"^passage (\d+):", re.MULTILINE)
_NOTES = ("implicit_true", "due_to_null", "meta")


def is_response(record: Mapping[str, Any]) -> bool:
    """Whether a record is a line of ``response.jsonl``."""
    return {"source_id", "response", "labels", "model"} <= record.keys() and "context" not in record


def is_source(record: Mapping[str, Any]) -> bool:
    """Whether a record is a line of ``source_info.jsonl``."""
    return {"source_id", "source_info", "prompt"} <= record.keys()


def is_dolly(record: Mapping[str, Any]) -> bool:
    """Whether a source belongs to ReDeEP's Dolly."""
    return is_source(record) and "human_response" in record


def read_ragtruth(paths: Sequence[Path]) -> Iterator[Example | BadRecord]:
    """Yield the responses of RAGTruth with their sources and word-level labels.

    Passages of question answering become a list. The question of the other tasks is the instruction that
    stands before the source in the prompt. ``quality``, ``temperature`` and the annotators' notes are kept in
    ``extra``; nothing is filtered.

    Args:
        paths: ``response.jsonl`` and ``source_info.jsonl`` in any order; the second is also found beside the first.

    Raises:
        InputError: If one of the two is missing or cannot be read.
    """
    return _read(paths, "ragtruth")


def read_redeep_dolly(paths: Sequence[Path]) -> Iterator[Example | BadRecord]:
    """Yield the responses of ReDeEP's Dolly with their sources; labels are of the kind ``response``.

    Args:
        paths: ``response_dolly.jsonl`` and ``source_info_dolly.jsonl`` in any order; the second is also found
            beside the first.

    Raises:
        InputError: If one of the two is missing or cannot be read.
    """
    return _read(paths, "dolly_ac")


def with_sources(paths: Sequence[Path]) -> list[Path]:
    """Return the files with the ``source_info`` file that lies beside a lone ``response`` file, if one does."""
    found = list(paths)
    if len(found) == 1 and "response" in found[0].name:
        beside = found[0].with_name(found[0].name.replace("response", "source_info"))
        found += [beside] if beside.is_file() else []
    return found


def _read(paths: Sequence[Path], dataset: str) -> Iterator[Example | BadRecord]:
    responses: list[Path] = []
    sources: list[Path] = []
    for path in with_sources(paths):
        record = first_object(path)
        if record is None or not (is_source(record) or is_response(record)):
            raise InputError(f"{str(path)!r} is neither a file of responses nor one of sources of RAGTruth's form.")
        (sources if is_source(record) else responses).append(path)
    if not responses or not sources:
        missing = "responses (response.jsonl)" if not responses else "sources (source_info.jsonl)"
        raise InputError(f"RAGTruth's form has two files, and the {missing} are missing. Name both.")
    yield from _joined(responses, sources, dataset)


def _joined(responses: Sequence[Path], sources: Sequence[Path], dataset: str) -> Iterator[Example | BadRecord]:
    known: dict[str | None, dict[str, Any]] = {}
    for path in sources:
        for number, record in read_objects(path):
            if isinstance(record, BadRecord):
                yield BadRecord(number, f"{path.name}: {record.error}")
                continue
            try:
                key = as_text("source_id", record.get("source_id"))
            except InputError as exc:
                yield BadRecord(number, f"{path.name}: {exc}")
                continue
            if known.setdefault(key, record) != record:
                raise InputError(
                    f"The source {key!r} stands twice with different content, the second time in {str(path)!r}, "
                    f"line {number}. Name only files that belong together."
                )
    yield from convert_files(responses, partial(_convert, known, dataset))


def _convert(
    sources: Mapping[str | None, Mapping[str, Any]], dataset: str, path: Path, number: int, record: Mapping[str, Any]
) -> Iterable[Example]:
    key = as_text("source_id", record.get("source_id"))
    if key not in sources:
        raise InputError(f"The response's source {key!r} is not in the file of sources.")
    source = sources[key]
    task, question, passages = _source(source)
    response = text_field(record, "response")
    marks = record.get("labels")
    kept = ("temperature", "quality")
    extra: dict[str, Any] = {name: record[name] for name in kept if name in record}
    extra |= {"origin": source["source"]} if "source" in source else {}
    labels: tuple[Label, ...] | None = None
    if dataset == "ragtruth" and isinstance(marks, list):
        labels, notes = _labels(marks, response)
        extra |= {"label_notes": notes} if any(notes) else {}
        hallucinated, kind = bool(labels), "span"
    else:
        hallucinated, kind = bool(marks) if isinstance(marks, list) else flag_of(marks), "response"
        labels = None if hallucinated else ()
    yield Example(
        question=question,
        passages=passages,
        response=response,
        labels=labels,
        hallucinated=hallucinated,
        id=f"{dataset}-{as_text('id', record.get('id', f'line-{number}'))}",
        dataset=dataset,
        task=task,
        label_kind=kind,
        model=as_text("model", record.get("model")),
        split=as_text("split", record.get("split")),
        source_id=key,
        extra=extra,
    )


def _source(source: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    """Return task, question and passages."""
    kind, info = source.get("task_type", "QA"), source.get("source_info")
    if kind not in _TASKS:
        raise InputError(f"The 'task_type' of a source must be one of {', '.join(_TASKS)}. Got {kind!r} instead.")
    if kind == "QA":
        if not isinstance(info, Mapping):
            raise InputError("The 'source_info' of a QA source must be an object with 'question' and 'passages'.")
        return _TASKS[kind], text_field(info, "question"), _passages(text_field(info, "passages"))
    prompt = text_field(source, "prompt")
    # The prompts hold the data as Python writes it; what the model saw is what the context is.
    context = info if isinstance(info, str) else str(info)
    if context not in prompt and not isinstance(info, str):
        context = json.dumps(info, ensure_ascii=False)
    instruction = prompt[: prompt.find(context)].strip() if context in prompt else ""
    return _TASKS[kind], instruction, (context,)


def _passages(text: str) -> tuple[str, ...]:
    """Cut "passage 1:... passage 2:..." where the numbers run from 1 without gaps; otherwise keep it whole."""
    heads = list(_PASSAGE.finditer(text))
    counted = [int(head[1]) for head in heads] == list(range(1, len(heads) + 1))
    if not heads or not counted or text[: heads[0].start()].strip():
        return (text.strip(),)
    ends = [head.start() for head in heads[1:]] + [len(text)]
    return tuple(text[head.end() : end].strip() for head, end in zip(heads, ends, strict=True))


def _labels(marks: Sequence[Any], response: str) -> tuple[tuple[Label, ...], list[dict[str, Any]]]:
    found = []
    for index, mark in enumerate(marks):
        if not isinstance(mark, Mapping) or not all(isinstance(mark.get(name), int) for name in ("start", "end")):
            raise InputError(f"labels[{index}] must be an object with whole numbers 'start' and 'end'. Got {mark!r}.")
        check_label_text(index, response, mark["start"], mark["end"], mark.get("text"))
        label = Label(mark["start"], mark["end"], str(mark.get("label_type") or ""))
        found.append((label, {name: mark[name] for name in _NOTES if mark.get(name)}))
    found.sort(key=lambda item: (item[0].start, item[0].end))
    return tuple(label for label, _ in found), [note for _, note in found]
