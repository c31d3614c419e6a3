"""Labels without a judge: whether a short known answer stands in the response."""

from __future__ import annotations

import dataclasses
import re
import string
from collections.abc import Iterable
from typing import Any

from groundscope.errors import InputError
from groundscope.example import Example

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Return a text in lower case without ASCII punctuation, English articles and repeated white space.

    Source: the evaluation of SQuAD (Rajpurkar et al. 2016).
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def contains_answer(response: str, answers: Iterable[str], whole_words: bool = False) -> bool:
    """Return whether any of the answers stands in the response, both normalised.

    Source: the metric of Lookback Lens on Natural Questions (arXiv 2407.07071), best-span exact match.

    Args:
        response: The response.
        answers: Any of them will do; those that normalise to nothing are ignored.
        whole_words: Whether an answer must not stand inside a longer word ("18" in "1887" would not do). The
            published metric takes any substring.

    Raises:
        InputError: If no answer is left.
    """
    wanted = [normal for answer in answers if (normal := normalize_answer(answer))]
    if not wanted:
        raise InputError("There is no gold answer that holds a word.")
    text = normalize_answer(response)
    if whole_words:
        return any(f" {answer} " in f" {text} " for answer in wanted)
    return any(answer in text for answer in wanted)


def gold_fields(example: Example, field: str, whole_words: bool = False) -> dict[str, Any]:
    """Return the fields that label an example as a whole: hallucinated if no gold answer stands in its response.

    Args:
        example: The example.
        field: The field of its record that holds the gold answers: a string or a list of strings.
        whole_words: See :func:`contains_answer`.

    Raises:
        InputError: If the field is missing, is one that every record has, or holds no answer.
    """
    if field not in example.extra:
        raise InputError(_no_field(example, field))
    answers = example.extra[field]
    if isinstance(answers, str):
        answers = [answers]
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise InputError(f"The field {field!r} must hold a gold answer or a list of them. Got {answers!r} instead.")
    hallucinated = not contains_answer(example.response, answers, whole_words)
    return {"labels": None if hallucinated else [], "hallucinated": hallucinated, "label_kind": "response"}


def _no_field(example: Example, field: str) -> str:
    wanted = f"The field {field!r} must hold a gold answer or a list of them."
    if field in {item.name for item in dataclasses.fields(example)} | {"context", "dataset"}:
        return f"{wanted} It is one of the fields that every record may have; put the answers into one of their own."
    return f"{wanted} The record lacks it; its own fields are {', '.join(map(repr, example.extra)) or 'none'}."
