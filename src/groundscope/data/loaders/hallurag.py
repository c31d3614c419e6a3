"""HalluRAG (github.com/F4biian/HalluRAG): answers to questions on Wikipedia, labelled by sentence.

The files hold one JSON array. Read here of each item: ``model``, ``quantization``, ``llm_response``, ``prompt``
(``rag_prompt``: chat messages; ``passage``: ``question`` and ``useful_art_i``; ``answerable`` and others) and
``sentence_data``: for every sentence ``cum_sentence``, the response up to its end, and ``target``
(``hallucinated`` or 1, ``non-hallucinated`` or 0, ``invalid`` or null). The prompts list the chunks as
"### Chunk 1: title" and their text. File names begin with ``train_``, ``val_`` or ``test_``. Some releases store
pickles, which are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from groundscope.data.jsonl import BadRecord
from groundscope.data.loaders.objects import convert_files, flag_of, text_field
from groundscope.errors import InputError
from groundscope.example import Example, Label, as_text

_CHUNK = re.compile(r"(?:^|^Context: )### Chunk (\d+): ", re.MULTILINE)
_SPLITS = {"train": "train", "val": "dev", "test": "test"}
_KEPT = ("quantization", "answerable", "chunk_size", "chunks_per_prompt", "prompt_template_name")


def is_hallurag(record: Mapping[str, Any]) -> bool:
    """Whether a record is an item of HalluRAG."""
    return {"prompt", "sentence_data", "llm_response"} <= record.keys()


def read_hallurag(paths: Sequence[Path]) -> Iterator[Example | BadRecord]:
    """Yield the answers with labels of the kind ``sentence``.

    Where a sentence's label is invalid, the tokens are not known: the example is labelled as a whole if
    another sentence is hallucinated, and not at all otherwise; ``extra["invalid_sentences"]`` counts them.
    """
    return convert_files(paths, _convert)


def _convert(path: Path, number: int, record: Mapping[str, Any]) -> Iterable[Example]:
    prompt, response = record["prompt"], text_field(record, "llm_response")
    if not isinstance(prompt, Mapping) or not isinstance(prompt.get("passage"), Mapping):
        raise InputError("The field 'prompt' must be an object that holds 'passage', an object.")
    question = text_field(prompt["passage"], "question")
    labels, invalid = _sentences(record["sentence_data"], response)
    extra = {name: value for name in _KEPT if (value := record.get(name, prompt.get(name))) is not None}
    if invalid:
        extra["invalid_sentences"] = invalid
    known = not invalid
    source, place = (as_text(name, prompt["passage"].get(name)) for name in ("useful_art_i", "useful_passage_i"))
    model = text_field(record, "model")
    parts = (model.rpartition("/")[2], as_text("quantization", record.get("quantization")), source, place)
    answerable = "answerable" if prompt.get("answerable") else "unanswerable"
    yield Example(
        question=question,
        passages=_passages(prompt, question),
        response=response,
        labels=labels if known else None,
        hallucinated=bool(labels) if known or labels else None,
        id="-".join(["hallurag", *(part for part in parts if part is not None), answerable]),
        dataset="hallurag",
        task="qa",
        label_kind="sentence" if known else "response" if labels else None,
        model=model,
        split=_SPLITS.get(path.name.split("_", 1)[0]),
        source_id=source,
        extra=extra,
    )


def _sentences(items: object, response: str) -> tuple[tuple[Label, ...], int]:
    """Return the labels of hallucinated sentences and how many sentences carry no valid label."""
    if not isinstance(items, Sequence) or isinstance(items, str):
        raise InputError(f"The field 'sentence_data' must be a list. Got {type(items).__name__} instead.")
    labels, invalid, start = [], 0, 0
    for index, item in enumerate(items):
        if not isinstance(item, Mapping) or "target" not in item:
            raise InputError(f"sentence_data[{index}] must be an object with 'cum_sentence' and 'target'.")
        upto = text_field(item, "cum_sentence")
        if not response.startswith(upto) or len(upto) <= start:
            raise InputError(f"The 'cum_sentence' of sentence_data[{index}] is not the response up to its end.")
        if item["target"] in (None, "invalid"):
            invalid += 1
        elif flag_of(item["target"]):
            first = start + len(upto[start:]) - len(upto[start:].lstrip())
            if first < len(upto):
                labels.append(Label(first, len(upto), "sentence"))
        start = len(upto)
    return tuple(labels), invalid


def _passages(prompt: Mapping[str, Any], question: str) -> tuple[str, ...]:
    messages = prompt.get("rag_prompt")
    if not isinstance(messages, Sequence) or not messages or not isinstance(messages[-1], Mapping):
        raise InputError("The record has no 'rag_prompt', so the context that the model was given is not known.")
    text = text_field(messages[-1], "content")
    ends = (text.rfind(f"\nQUESTION: {question}"), text.rfind(" \nAnswer:"))
    text = text[: max(ends)] if max(ends) >= 0 else text
    heads = list(_CHUNK.finditer(text))
    if [int(head[1]) for head in heads] != list(range(1, len(heads) + 1)) or not heads:
        raise InputError("The 'rag_prompt' does not list its chunks as '### Chunk 1: ...'.")
    stops = [head.start() for head in heads[1:]] + [len(text)]
    return tuple(text[head.end() : stop].strip() for head, stop in zip(heads, stops, strict=True))
