"""HaluEval (github.com/RUCAIBox/HaluEval, ``data/``): pairs of a reference and a made-up wrong answer.

One JSON object per line: ``qa_data.json`` with ``knowledge``, ``question``, ``right_answer``,
``hallucinated_answer``; ``dialogue_data.json`` with ``knowledge``, ``dialogue_history``, ``right_response``,
``hallucinated_response``; ``summarization_data.json`` with ``document``, ``right_summary``,
``hallucinated_summary``. ``general_data.json`` has no context, so nothing in it can be judged against one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groundscope.data.jsonl import BadRecord
from groundscope.data.loaders.objects import convert_files, text_field
from groundscope.errors import InputError
from groundscope.example import Example


@dataclass(frozen=True)
class _Fields:
    task: str
    name: str
    context: str
    question: str | None
    right: str
    wrong: str


_FORMS = (
    _Fields("qa", "qa", "knowledge", "question", "right_answer", "hallucinated_answer"),
    _Fields("dialogue", "dialogue", "knowledge", "dialogue_history", "right_response", "hallucinated_response"),
    _Fields("summarization", "summarization", "document", None, "right_summary", "hallucinated_summary"),
)


def is_halueval(record: Mapping[str, Any]) -> bool:
    """Whether a record is a line of HaluEval, also of its general part, which has no context."""
    general = {"user_query", "chatgpt_response"} <= record.keys()
    return general or any({form.context, form.right, form.wrong} <= record.keys() for form in _FORMS)


def read_halueval(paths: Sequence[Path]) -> Iterator[Example | BadRecord]:
    """Yield two examples per line, the right answer first; labels are of the kind ``response``."""
    return convert_files(paths, _convert)


def _convert(path: Path, number: int, record: Mapping[str, Any]) -> Iterable[Example]:
    for form in _FORMS:
        if {form.context, form.right, form.wrong} <= record.keys():
            break
    else:
        raise InputError(
            "The record has none of HaluEval's fields for question answering, dialogue or summarization with a "
            f"context. Got the fields {sorted(map(str, record))}; the general part cannot be judged against a context."
        )
    context, question = text_field(record, form.context), text_field(record, form.question) if form.question else ""
    for field, name, hallucinated in ((form.right, "right", False), (form.wrong, "hallucinated", True)):
        yield Example(
            question=question,
            passages=(context,),
            response=text_field(record, field),
            labels=None if hallucinated else (),
            hallucinated=hallucinated,
            id=f"halueval-{form.name}-{number}-{name}",
            dataset=f"halueval_{form.name}",
            task=form.task,
            label_kind="response",
            model="chatgpt" if hallucinated else "human reference",
            source_id=f"{number}",
        )
