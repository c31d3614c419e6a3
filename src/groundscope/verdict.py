"""Verdict: what groundscope says about one response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from groundscope.doors import open_door
from groundscope.errors import InputError, check_choice, is_finite, is_share
from groundscope.verdict_parts import (
    Evidence,
    Nearest,
    Reason,
    SentenceScore,
    Span,
    Threshold,
    TokenScore,
    Unscored,
    check_evidence,
    check_explanation,
    check_stretches,
    is_threshold,
)

__all__ = [
    "OUTCOMES",
    "SCHEMA_VERSION",
    "Evidence",
    "Nearest",
    "Outcome",
    "Reason",
    "SentenceScore",
    "Span",
    "Threshold",
    "TokenScore",
    "Unscored",
    "Verdict",
]

Outcome = Literal["scored", "partial", "no_answer", "no_context", "too_long", "failed"]
OUTCOMES: tuple[str, ...] = get_args(Outcome)
SCHEMA_VERSION = 2
# Files of version 1 lack probabilities, reasons and nearest sentences, and are read without them.
_READABLE = (1, SCHEMA_VERSION)
_SCORED = ("scored", "partial")


@dataclass(frozen=True)
class Verdict:
    """What groundscope says about one response.

    Attributes:
        outcome: ``scored``; ``partial`` (see ``unscored``); ``no_answer``, ``no_context``, ``too_long`` or
            ``failed``, which carry no score and must not be read as clean.
        response: The response as given.
        score: Response score, higher = less supported; ``None`` if it could not be scored.
        flagged: Whether ``score >= threshold.response``; ``None`` without a score.
        aggregation: How ``score`` was made from the token scores.
        detector: Name of the detector.
        model: The model that read the response.
        threshold: The lines drawn, and where they come from.
        tokens: Score per response token.
        spans: Unsupported stretches in order of appearance.
        sentences: Score per sentence; the sentences cover the response.
        unscored: Stretches without a score.
        message: For people: why it could not be scored, or what to know about the score.
        contrast: How the random document was drawn, for detectors that use one.
        id: The example's identifier.
        question: The question as given.
        passages: The passages as given.
        probability: Calibrated probability that the response is not supported; ``None`` if the detector gives none.
        profile: Name of the calibration profile that judged it; empty if none did.

    Raises:
        InputError: If the parts contradict each other: a score without the outcome for it or the reverse, a
            score that is not finite, a stretch that is not in the response, evidence from no passage.
    """

    outcome: Outcome
    response: str
    score: float | None
    flagged: bool | None
    aggregation: str
    detector: str
    model: str
    threshold: Threshold | None = None
    tokens: tuple[TokenScore, ...] = ()
    spans: tuple[Span, ...] = ()
    sentences: tuple[SentenceScore, ...] = ()
    unscored: tuple[Unscored, ...] = ()
    message: str = ""
    contrast: Mapping[str, Any] | None = None
    id: str | None = None
    question: str = ""
    passages: tuple[str, ...] = ()
    probability: float | None = None
    profile: str = ""

    def __post_init__(self) -> None:
        check_choice("Verdict", "outcome", self.outcome, OUTCOMES)
        _check_fields(self)
        if self.outcome in _SCORED:
            if not is_finite(self.score) or not isinstance(self.flagged, bool):
                raise InputError(
                    f"A verdict with the outcome {self.outcome!r} needs a finite score and flagged true or false. "
                    f"Got score={self.score!r}, flagged={self.flagged!r} instead."
                )
        elif self.score is not None or self.flagged is not None or self.probability is not None:
            raise InputError(
                f"A verdict with the outcome {self.outcome!r} must have neither score, probability nor flagged. Got "
                f"score={self.score!r}, probability={self.probability!r}, flagged={self.flagged!r} instead."
            )
        for kind, item_type, items in (
            ("token", TokenScore, self.tokens),
            ("span", Span, self.spans),
            ("sentence", SentenceScore, self.sentences),
            ("unscored stretch", Unscored, self.unscored),
        ):
            check_stretches(kind, item_type, items, self.response)
        for span in self.spans:
            check_evidence(span, len(self.passages))
        explained: tuple[Span | SentenceScore, ...] = (*self.spans, *self.sentences)
        for part in explained:
            check_explanation(part, self.passages)

    def to_dict(self, include_context: bool = True) -> dict[str, Any]:
        """Return the verdict as plain JSON values (``docs/verdict.schema.json`` describes them).

        Args:
            include_context: Whether to repeat question and passages.
        """
        record = {"schema_version": SCHEMA_VERSION} | asdict(self)
        record["contrast"] = None if self.contrast is None else dict(self.contrast)
        for name in ("tokens", "spans", "sentences", "unscored", "passages"):
            record[name] = list(record[name])
        for span in record["spans"]:
            span["evidence"] = list(span["evidence"])
        for item in (*record["spans"], *record["sentences"]):
            item["reasons"] = list(item["reasons"])
        if not include_context:
            del record["question"], record["passages"]
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Verdict:
        """Read what :meth:`to_dict` wrote, of this schema version or of version 1.

        Raises:
            InputError: If the record is not a verdict of these schema versions.
        """
        if not isinstance(record, Mapping):
            raise InputError(f"A verdict's record must be a JSON object. Got {type(record).__name__} instead.")
        version = record.get("schema_version")
        if version not in _READABLE:
            raise InputError(
                f"A verdict of schema version {' or '.join(map(str, _READABLE))} was expected. Got {version!r} "
                "instead; score the data again with this version of groundscope."
            )
        values = {key: value for key, value in record.items() if key != "schema_version"}
        try:
            values["threshold"] = None if values.get("threshold") is None else Threshold(**values["threshold"])
            values["tokens"] = tuple(TokenScore(**item) for item in values.get("tokens", ()))
            values["spans"] = tuple(
                Span(**{**_explained(item), "evidence": tuple(Evidence(**e) for e in item.get("evidence", ()))})
                for item in values.get("spans", ())
            )
            values["sentences"] = tuple(SentenceScore(**_explained(item)) for item in values.get("sentences", ()))
            values["unscored"] = tuple(Unscored(**item) for item in values.get("unscored", ()))
            passages = values.get("passages", ())
            # A bare string stays one and is refused: it is no list of its characters.
            values["passages"] = passages if isinstance(passages, str) else tuple(passages)
            return cls(**values)
        except (TypeError, AttributeError) as exc:
            raise InputError(f"This record is not a verdict: {exc}.") from exc

    def to_html(self) -> str:
        """Return one self-contained HTML page that highlights the unsupported spans."""
        page: str = open_door("Verdict.to_html")([self])
        return page

    def _repr_html_(self) -> str:
        frame: str = open_door("Verdict._repr_html_")(self)
        return frame

    def __str__(self) -> str:
        text: str = open_door("Verdict.__str__")(self)
        return text


def _explained(item: Mapping[str, Any]) -> dict[str, Any]:
    """A span's or sentence's record with reasons and nearest sentence read."""
    nearest = item.get("nearest")
    return {
        **item,
        "reasons": tuple(Reason(**reason) for reason in item.get("reasons", ())),
        "nearest": None if nearest is None else Nearest(**nearest),
    }


def _check_fields(verdict: Verdict) -> None:
    for name in ("response", "question", "aggregation", "detector", "model", "message", "profile"):
        value = getattr(verdict, name)
        if not isinstance(value, str):
            raise InputError(f"The field {name!r} of a verdict must be a string. Got {value!r} instead.")
    if verdict.id is not None and not isinstance(verdict.id, str):
        raise InputError(f"The field 'id' of a verdict must be a string or None. Got {verdict.id!r} instead.")
    if not isinstance(verdict.passages, tuple) or not all(isinstance(item, str) for item in verdict.passages):
        raise InputError(f"The field 'passages' of a verdict must be a tuple of strings. Got {verdict.passages!r}.")
    if verdict.contrast is not None and not isinstance(verdict.contrast, Mapping):
        raise InputError(f"The field 'contrast' of a verdict must be a mapping or None. Got {verdict.contrast!r}.")
    line = verdict.threshold
    if line is not None and not is_threshold(line):
        raise InputError(
            "The field 'threshold' of a verdict must hold finite numbers, probabilities in [0, 1] and its source. "
            f"Got {line!r} instead."
        )
    if verdict.probability is not None and not is_share(verdict.probability):
        raise InputError(
            "The field 'probability' of a verdict must be a number in [0, 1] or None. "
            f"Got {verdict.probability!r} instead."
        )
