"""Annotation files of Lookback Lens (github.com/voidism/Lookback-Lens): answers judged by GPT-4o.

``step02_eval_gpt4o.py`` writes one JSON object per line: ``index``, ``document``, ``ground_truth``, ``response``,
``decision`` (true: supported), ``gpt4_explanation``, ``problematic_spans`` (a list of strings) and ``cost``. The
document begins with "#Document#:" or "#Article#:" (or both); for questions it ends with "#Question#: ...".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from groundscope.data.jsonl import BadRecord
from groundscope.data.labelling.occurrences import place_quotes
from groundscope.data.loaders.objects import convert_files, text_field
from groundscope.errors import InputError
from groundscope.example import Example, as_text

_HEADS = re.compile(r"\A(?:#(?:Document|Article)#:\s*)+")
_QUESTION = "\n#Question#:"


def is_lookback_lens(record: Mapping[str, Any]) -> bool:
    """Whether a record is a line of an annotation file."""
    return {"document", "response", "decision", "problematic_spans"} <= record.keys()


def read_lookback_lens(paths: Sequence[Path]) -> Iterator[Example | BadRecord]:
    """Yield judged answers; every place where a problematic span stands in the answer is labelled.

    Spans that do not stand in the answer word for word are kept in ``extra["unmatched_spans"]``; where none
    does, only the whole response is labelled. (The authors' code takes the first occurrence, and the most
    similar stretch where there is none.) An answer without a decision stays unlabelled.
    """
    return convert_files(paths, _convert)


def _convert(path: Path, number: int, record: Mapping[str, Any]) -> Iterable[Example]:
    response = text_field(record, "response")
    document = _HEADS.sub("", text_field(record, "document"))
    head, mark, tail = document.rpartition(_QUESTION)
    question, context = (tail.strip(), head.strip()) if mark else ("", document.strip())
    decision, spans = record["decision"], record["problematic_spans"]
    if decision is not None and not isinstance(decision, bool):
        raise InputError(f"The field 'decision' must be true, false or null. Got {decision!r} instead.")
    if not isinstance(spans, list) or not all(isinstance(span, str) for span in spans):
        raise InputError(f"The field 'problematic_spans' must be a list of strings. Got {spans!r} instead.")
    extra: dict[str, Any] = {"gold_answers": record["ground_truth"]} if "ground_truth" in record else {}
    hallucinated = None if decision is None else not decision
    placed = place_quotes(response, spans if hallucinated else ())
    if placed.unmatched:
        extra["unmatched_spans"] = list(placed.unmatched)
    if decision is not False and spans:
        extra["ignored_spans"] = spans
    whole = bool(hallucinated) and not placed.labels
    yield Example(
        question=question,
        passages=(context,) if context else (),
        response=response,
        labels=None if whole or hallucinated is None else placed.labels,
        hallucinated=hallucinated,
        id=f"lookback-lens-{as_text('index', record.get('index', f'line-{number}'))}",
        dataset="lookback_lens",
        task="qa" if mark else "summarization",
        label_kind=None if hallucinated is None else "response" if whole else "span",
        extra=extra,
    )
