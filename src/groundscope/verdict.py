"""Verdict: what groundscope says about one response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from groundscope.errors import InputError, check_choice

Outcome = Literal["scored", "partial", "no_answer", "no_context", "too_long", "failed"]
OUTCOMES: tuple[str, ...] = get_args(Outcome)
SCHEMA_VERSION = 1


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
            values["passages"] = tuple(values.get("passages", ()))
            return cls(**values)
        except TypeError as exc:
            raise InputError(f"This record is not a verdict: {exc}.") from exc

    def to_html(self) -> str:
        """Return one self-contained HTML page that highlights the unsupported spans."""
        from groundscope.report.html import render_page

        return render_page([self])

    def _repr_html_(self) -> str:
        from groundscope.report.html import notebook_frame

        return notebook_frame(self)

    def __str__(self) -> str:
        from groundscope.report.terminal import format_verdict

        return format_verdict(self)
