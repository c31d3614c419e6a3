"""Example: question, passages, response and, if known, what people marked as unsupported."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any

from groundscope.errors import InputError

_TEXT_FIELDS = ("dataset", "task", "label_kind", "model", "split", "source_id", "license")
_KNOWN_FIELDS = frozenset(
    {"id", "question", "context", "passages", "response", "labels", "hallucinated", *_TEXT_FIELDS}
)


@dataclass(frozen=True)
class Label:
    """A stretch of the response that people marked as unsupported.

    Attributes:
        start: First code point, 0-based.
        end: One past the last code point.
        type: The annotators' category; may be empty.
    """

    start: int
    end: int
    type: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the label as plain JSON values."""
        return {"start": self.start, "end": self.end, "type": self.type}


@dataclass(frozen=True)
class Example:
    """One unit of input.

    Attributes:
        question: The user's question or instruction; may be empty.
        passages: The retrieved passages, in prompt order; may be empty.
        response: The answer to be checked; may be empty.
        labels: Human labels, half-open code-point offsets into ``response``; ``None`` if nobody labelled it.
        hallucinated: Response-level label; ``None`` if unknown.
        id: The caller's identifier.
        dataset: Name of the data set.
        task: ``qa``, ``summarization``, ``data2text``, ``dialogue`` or a name of the caller's.
        label_kind: ``span``, ``sentence`` or ``response``: how fine the labels are.
        model: Who wrote the response.
        split: ``train``, ``dev`` or ``test``.
        source_id: Key that groups examples about the same context.
        license: Licence of the record.
        extra: Any other fields of the record, kept as they were.

    Raises:
        InputError: If a text or the identifier is not valid Unicode, or a label lies outside the response.
    """

    question: str
    passages: tuple[str, ...]
    response: str
    labels: tuple[Label, ...] | None = None
    hallucinated: bool | None = None
    id: str | None = None
    dataset: str | None = None
    task: str | None = None
    label_kind: str | None = None
    model: str | None = None
    split: str | None = None
    source_id: str | None = None
    license: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "passages", _as_passages(self.passages))
        check_text("question", self.question)
        check_text("response", self.response)
        if self.id is not None:
            check_text("id", self.id)
        if self.labels is not None:
            object.__setattr__(self, "labels", _as_labels(self.labels, len(self.response)))

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Example:
        """Build an example from one JSON record.

        Args:
            record: Needs ``response``; ``context`` (or ``passages``) is a string or a list of strings.

        Raises:
            InputError: If a field is missing, has the wrong type or holds offsets outside the response.
        """
        if not isinstance(record, Mapping):
            raise InputError(f"A record must be a JSON object. Got {type(record).__name__} instead.")
        if "response" not in record:
            raise InputError(
                f"A record needs the field 'response'. Got the fields {sorted(map(str, record))} instead; "
                "'groundscope convert' reads files of other projects."
            )
        if "context" in record and "passages" in record:
            raise InputError("A record has either 'context' or 'passages'. Got both; remove one.")
        context = record.get("context", record.get("passages"))
        hallucinated = record.get("hallucinated")
        if hallucinated is not None and not isinstance(hallucinated, bool):
            raise InputError(f"The field 'hallucinated' must be true, false or null. Got {hallucinated!r} instead.")
        return cls(
            question=as_text("question", record.get("question")) or "",
            passages=() if context is None else context,
            response=record["response"],
            labels=_labels_from(record.get("labels")),
            hallucinated=hallucinated,
            id=as_text("id", record.get("id")),
            extra={key: value for key, value in record.items() if key not in _KNOWN_FIELDS},
            **{name: as_text(name, record.get(name)) for name in _TEXT_FIELDS},
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the record that :meth:`from_dict` reads; fields that are not set are left out."""
        record: dict[str, Any] = {"id": self.id, "question": self.question, "context": list(self.passages)}
        record["response"] = self.response
        record["labels"] = None if self.labels is None else [label.to_dict() for label in self.labels]
        record["hallucinated"] = self.hallucinated
        record.update({name: getattr(self, name) for name in _TEXT_FIELDS})
        return {key: value for key, value in record.items() if value is not None} | dict(self.extra)

    @property
    def group(self) -> str:
        """What examples of the same context share: the source, or failing that the passages themselves."""
        if self.source_id is not None:
            return f"{self.dataset or ''}/{self.source_id}"
        return hashlib.sha256("\0".join(self.passages).encode()).hexdigest()[:16]

    def with_response(self, response: str) -> Example:
        """Return the same question and passages with another, unlabelled response."""
        return replace(self, response=response, labels=None, hallucinated=None)


def check_text(name: str, value: object) -> None:
    """Refuse what is not a string, or a string that no UTF-8 file can hold (lone surrogates)."""
    if not isinstance(value, str):
        raise InputError(f"The field {name!r} must be a string. Got {type(value).__name__} instead.")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as exc:
        raise InputError(
            f"The field {name!r} is not valid Unicode: lone surrogate at position {exc.start}. "
            "Decode the source as UTF-8 (errors='replace' keeps the rest)."
        ) from exc


def as_text(name: str, value: object) -> str | None:
    """Return the text of an identifier or another short field, where a record may hold a whole number as well.

    What records are joined by must be written in one way only. 3.0 is refused because it is 3 to some programs and
    3.0 to others; so are NaN, true, lists and objects.

    Args:
        name: The field, for messages.
        value: What it holds; ``None`` stays.

    Raises:
        InputError: If it is anything else.
    """
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, bool) and isinstance(value, Integral):
        return str(int(value))
    advice = f" Write {int(value)} or '{value}'." if isinstance(value, float) and value.is_integer() else ""
    raise InputError(
        f"The field {name!r} must be a string or a whole number. Got {value!r:.60} ({type(value).__name__}) instead."
        f"{advice}"
    )


def _as_passages(passages: object) -> tuple[str, ...]:
    if isinstance(passages, str):
        passages = (passages,)
    if not isinstance(passages, Sequence):
        raise InputError(f"The passages must be a string or a list of strings. Got {type(passages).__name__} instead.")
    for index, passage in enumerate(passages):
        check_text(f"passages[{index}]", passage)
    return tuple(passages)


def _as_labels(labels: object, length: int) -> tuple[Label, ...]:
    if not isinstance(labels, Sequence) or isinstance(labels, str):
        raise InputError(f"The labels must be a list of Label, or None. Got {type(labels).__name__} instead.")
    for index, label in enumerate(labels):
        if not isinstance(label, Label):
            raise InputError(
                f"labels[{index}] must be a Label. Got {label!r} instead; "
                "records with plain labels are read by Example.from_dict."
            )
        _check_label(label, length)
    return tuple(labels)


def _labels_from(value: object) -> tuple[Label, ...] | None:
    if value is None:
        return None
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise InputError(f"The field 'labels' must be a list. Got {type(value).__name__} instead.")
    labels = []
    for index, item in enumerate(value):
        if not isinstance(item, Mapping) or "start" not in item or "end" not in item:
            raise InputError(f"labels[{index}] must be an object with 'start' and 'end'. Got {item!r} instead.")
        labels.append(Label(item["start"], item["end"], str(item.get("type") or "")))
    return tuple(labels)


def _check_label(label: Label, length: int) -> None:
    whole = all(isinstance(value, int) and not isinstance(value, bool) for value in (label.start, label.end))
    if not whole or not 0 <= label.start < label.end <= length:
        raise InputError(
            f"A label must satisfy 0 <= start < end <= {length} (the response's length in code points). "
            f"Got start={label.start!r}, end={label.end!r} instead."
        )
