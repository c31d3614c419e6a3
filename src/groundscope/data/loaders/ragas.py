"""Evaluation sets of RAGAS (docs.ragas.io): questions, retrieved contexts and answers, without labels.

One JSON object per record, as its datasets are exported: ``user_input``, ``retrieved_contexts``, ``response`` and
perhaps ``reference``; before version 0.2 ``question``, ``contexts``, ``answer`` and ``ground_truth`` or
``ground_truths``. Conversations of several turns have no single answer and are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from groundscope.data.jsonl import BadRecord
from groundscope.data.loaders.objects import convert_files, text_field
from groundscope.errors import InputError
from groundscope.example import Example, as_text

# (question, contexts, answer, fields with right answers)
_FORMS = (
    ("user_input", "retrieved_contexts", "response", ("reference",)),
    ("question", "contexts", "answer", ("ground_truth", "ground_truths")),
)


def is_ragas(record: Mapping[str, Any]) -> bool:
    """Whether a record is of either form."""
    return any({question, contexts, answer} <= record.keys() for question, contexts, answer, _ in _FORMS)


def read_ragas(paths: Sequence[Path]) -> Iterator[Example | BadRecord]:
    """Yield unlabelled answers; right answers are kept in ``extra["gold_answers"]``."""
    return convert_files(paths, _convert)


def _convert(path: Path, number: int, record: Mapping[str, Any]) -> Iterable[Example]:
    form = next((form for form in _FORMS if form[1] in record), _FORMS[0])
    question, contexts, answer, references = form
    passages = record.get(contexts)
    if not isinstance(passages, list) or not all(isinstance(passage, str) for passage in passages):
        raise InputError(f"The field {contexts!r} must be a list of strings. Got {type(passages).__name__} instead.")
    gold = [text for name in references for text in _texts(record.get(name)) if text.strip()]
    yield Example(
        question=text_field(record, question),
        passages=tuple(passages),
        response=text_field(record, answer),
        id=as_text("id", record.get("id", f"ragas-{number}")),
        task="qa",
        extra={"gold_answers": gold} if gold else {},
    )


def _texts(value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [text for text in values if isinstance(text, str)]
