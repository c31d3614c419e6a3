"""Verdict: what groundscope says about one response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from groundscope.errors import InputError, check_choice, is_finite

Outcome = Literal["scored", "partial", "no_answer", "no_context", "too_long", "failed"]
OUTCOMES: tuple[str, ...] = get_args(Outcome)
SCHEMA_VERSION = 1
_SCORED = ("scored", "partial")


@dataclass(frozen=True)
class TokenScore:
    """One response token. ``response[start:end] == text``; a higher score means less supported.

    The pieces of one character share its whole range: offsets never cut a character.

    Attributes:
        start: First code point.
        end: One past the last code point.
        text: ``response[start:end]``.
        score: The token's own score.
        stretch: Score of the stretch around it: what spans are cut out of, in the unit of ``threshold.span``.
            ``None`` where it is the score itself.
    """

    start: int
    end: int
    text: str
    score: float
    stretch: float | None = None

    @property
    def level(self) -> float:
        """What is compared with ``threshold.span``."""
        return self.score if self.stretch is None else self.stretch


@dataclass(frozen=True)
class Evidence:
    """Where the model looked while it read a span.

    Attributes:
        passage: 0-based index into the passages.
        weight: Share of the attention on all passages that went to this one, in [0, 1].
    """

    passage: int
    weight: float


@dataclass(frozen=True)
class Span:
    """An unsupported stretch of the response, snapped to words. ``response[start:end] == text``."""

    start: int
    end: int
    text: str
    score: float
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class SentenceScore:
    """One sentence of the response; ``score`` is ``None`` where no token of it could be scored."""

    start: int
    end: int
    text: str
    score: float | None
    flagged: bool


@dataclass(frozen=True)
class Unscored:
    """A stretch of the response without a score, and why."""

    start: int
    end: int
    reason: str


@dataclass(frozen=True)
class Threshold:
    """Where the line is drawn.

    Attributes:
        response: The response is flagged when its score is at least this.
        span: A stretch is reported when its score (``TokenScore.stretch``) is at least this.
        source: Where the two numbers come from, in words.
    """

    response: float
    span: float
    source: str


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

    def __post_init__(self) -> None:
        check_choice("Verdict", "outcome", self.outcome, OUTCOMES)
        _check_fields(self)
        if self.outcome in _SCORED:
            if not is_finite(self.score) or not isinstance(self.flagged, bool):
                raise InputError(
                    f"A verdict with the outcome {self.outcome!r} needs a finite score and flagged true or false. "
                    f"Got score={self.score!r}, flagged={self.flagged!r} instead."
                )
        elif self.score is not None or self.flagged is not None:
            raise InputError(
                f"A verdict with the outcome {self.outcome!r} must have neither score nor flagged. "
                f"Got score={self.score!r}, flagged={self.flagged!r} instead."
            )
        for kind, item_type, items in (
            ("token", TokenScore, self.tokens),
            ("span", Span, self.spans),
            ("sentence", SentenceScore, self.sentences),
            ("unscored stretch", Unscored, self.unscored),
        ):
            _check_stretches(kind, item_type, items, self.response)
        for span in self.spans:
            _check_evidence(span, len(self.passages))

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
        if not include_context:
            del record["question"], record["passages"]
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Verdict:
        """Read what :meth:`to_dict` wrote.

        Raises:
            InputError: If the record is not a verdict of this schema version.
        """
        if not isinstance(record, Mapping):
            raise InputError(f"A verdict's record must be a JSON object. Got {type(record).__name__} instead.")
        version = record.get("schema_version")
        if version != SCHEMA_VERSION:
            raise InputError(
                f"A verdict of schema version {SCHEMA_VERSION} was expected. Got {version!r} instead; "
                "score the data again with this version of groundscope."
            )
        values = {key: value for key, value in record.items() if key != "schema_version"}
        try:
            values["threshold"] = None if values.get("threshold") is None else Threshold(**values["threshold"])
            values["tokens"] = tuple(TokenScore(**item) for item in values.get("tokens", ()))
            values["spans"] = tuple(
                Span(**{**item, "evidence": tuple(Evidence(**e) for e in item.get("evidence", ()))})
                for item in values.get("spans", ())
            )
            values["sentences"] = tuple(SentenceScore(**item) for item in values.get("sentences", ()))
            values["unscored"] = tuple(Unscored(**item) for item in values.get("unscored", ()))
            passages = values.get("passages", ())
            # A bare string stays one and is refused: it is no list of its characters.
            values["passages"] = passages if isinstance(passages, str) else tuple(passages)
            return cls(**values)
        except (TypeError, AttributeError) as exc:
            raise InputError(f"This record is not a verdict: {exc}.") from exc

    def to_html(self) -> str:
        """Return one self-contained HTML page that highlights the unsupported spans."""
        from groundscope.report.verdict.html import render_page

        return render_page([self])

    def _repr_html_(self) -> str:
        from groundscope.report.verdict.html import notebook_frame

        return notebook_frame(self)

    def __str__(self) -> str:
        from groundscope.report.verdict.terminal import format_verdict

        return format_verdict(self)


def _check_fields(verdict: Verdict) -> None:
    for name in ("response", "question", "aggregation", "detector", "model", "message"):
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
    if line is not None and not (isinstance(line, Threshold) and is_finite(line.response) and is_finite(line.span)):
        raise InputError(f"The field 'threshold' of a verdict must hold two finite numbers. Got {line!r} instead.")


def _check_stretches(kind: str, item_type: type[Any], items: Any, response: str) -> None:
    if not isinstance(items, tuple):
        raise InputError(f"A verdict keeps every {kind} in a tuple. Got {type(items).__name__} instead.")
    length = len(response)
    for item in items:
        if not isinstance(item, item_type):
            raise InputError(f"Every {kind} of a verdict must be a {item_type.__name__}. Got {item!r} instead.")
        start, end = item.start, item.end
        inside = type(start) is int and type(end) is int and 0 <= start <= end <= length
        if not inside or (item_type is not Unscored and item.text != response[start:end]):
            raise InputError(
                f"The {kind} {start}-{end} lies outside the response of {length} code points, or its text is not "
                f"response[{start}:{end}]. Got {item!r}; offsets must satisfy 0 <= start <= end <= {length}."
            )
        if item_type is Unscored:
            continue
        # A sentence may have no score, and a token no stretch of its own.
        optional = item.score if item_type is SentenceScore else getattr(item, "stretch", None)
        if not (optional is None or is_finite(optional)) or not (item_type is SentenceScore or is_finite(item.score)):
            raise InputError(f"The score of every {kind} must be a finite number. Got {item!r} instead.")


def _check_evidence(span: Span, passages: int) -> None:
    for item in span.evidence:
        whole = isinstance(item, Evidence) and type(item.passage) is int and is_finite(item.weight)
        # A verdict written without its context has evidence and no passages.
        if not whole or item.passage < 0 or (passages and item.passage >= passages):
            raise InputError(
                f"Evidence must name a passage by its number from 0, below {passages or 'their count'}, and hold a "
                f"finite weight. Got {item!r} instead."
            )
