"""What was decided while an answer was written: candidates, their scores, the choices; and the way back to the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from groundscope.errors import InputError, MismatchError, check_choice, is_finite
from groundscope.mitigate.writing.sampler import Sampler
from groundscope.mitigate.writing.spelling import Spelling

LOG_VERSION = 1
BASES = ("only", "identical", "score", "first")
_ENDS = ("end", "stop", "length", None)


@dataclass(frozen=True)
class Candidate:
    """One way to go on.

    Attributes:
        ids: Its tokens, without what ended it.
        text: The characters that they add. A candidate that ends in the middle of a character shows it as it stands.
        score: The detector's, higher = more hallucinated; ``None`` where it was not scored.
        ended: Why it goes no further; ``None`` if it could.
        cut: Tokens of the answer before it that go with it: a stop string may begin in them.
    """

    ids: tuple[int, ...]
    text: str
    score: float | None = None
    ended: str | None = None
    cut: int = 0

    def __post_init__(self) -> None:
        check_choice("Candidate", "ended", self.ended, _ENDS)
        whole = all(type(number) is int and number >= 0 for number in (*self.ids, self.cut))
        if not whole or not isinstance(self.text, str) or not (self.score is None or is_finite(self.score)):
            raise InputError(
                f"A candidate must hold token ids, their text, and a finite score or none. Got {self!r} instead."
            )


@dataclass(frozen=True)
class Decision:
    """One choice among candidates.

    Attributes:
        stage: The number of the draws (see :meth:`groundscope.mitigate.writing.sampler.Sampler.draws`).
        candidates: What there was to choose from.
        chosen: Number of the one that was taken.
        basis: ``only`` (there was one), ``identical`` (all were the same), ``score`` (the lowest, the first of
            equals), or ``first`` (none could be scored).
    """

    stage: int
    candidates: tuple[Candidate, ...]
    chosen: int
    basis: str

    def __post_init__(self) -> None:
        check_choice("Decision", "basis", self.basis, BASES)
        if type(self.chosen) is not int or not 0 <= self.chosen < len(self.candidates):
            raise InputError(
                f"A decision must choose one of its {len(self.candidates)} candidates. Got {self.chosen!r} instead."
            )
        if self.basis == "score" and self.chosen != lowest([item.score for item in self.candidates]):
            raise InputError(
                f"A decision by score must choose the first of the lowest. Got {self.chosen} of "
                f"{[item.score for item in self.candidates]}."
            )

    @property
    def taken(self) -> Candidate:
        """The candidate that was chosen."""
        return self.candidates[self.chosen]


@dataclass(frozen=True)
class DecisionLog:
    """All decisions of one answer, and what they depended on.

    Attributes:
        strategy: How it was written.
        model: Name of the model that wrote.
        text: The answer as written.
        sampler: How tokens were drawn, with the seed.
        max_new_tokens: The budget.
        stop: Strings that end an answer.
        decisions: In order.
        detector: Name of the detector that chose, if one did.
        settings: The strategy's own: candidates, chunk, variant.
        prefix: Tokens that stood there before the first decision.
    """

    strategy: str
    model: str
    text: str
    sampler: Sampler
    max_new_tokens: int
    stop: tuple[str, ...] = ()
    decisions: tuple[Decision, ...] = ()
    detector: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    prefix: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        texts = (self.strategy, self.model, self.text, *self.stop)
        wrong: list[object] = [item for item in texts if not isinstance(item, str)]
        wrong += [item for item in (self.max_new_tokens, *self.prefix) if type(item) is not int or item < 0]
        if wrong:
            raise InputError(
                "A decision log must hold its strategy, model, text and stop strings as strings, its budget and "
                f"prefix as integers of at least 0. Got {wrong[0]!r} instead."
            )

    @property
    def ids(self) -> list[int]:
        """The tokens of the answer, and those of a character that the budget cut in two."""
        found = list(self.prefix)
        for decision in self.decisions:
            taken = decision.taken
            del found[len(found) - taken.cut :]
            found += taken.ids
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the log as plain JSON values."""
        record = {"log_version": LOG_VERSION} | asdict(replace(self, settings=dict(self.settings)))
        record["stop"], record["prefix"] = list(self.stop), list(self.prefix)
        record["decisions"] = list(record["decisions"])
        for decision in record["decisions"]:
            decision["candidates"] = [{**item, "ids": list(item["ids"])} for item in decision["candidates"]]
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> DecisionLog:
        """Read what :meth:`to_dict` wrote.

        Raises:
            InputError: If the record is no decision log of this version, or its choices do not follow from its scores.
        """
        if not isinstance(record, Mapping) or record.get("log_version") != LOG_VERSION:
            given = record.get("log_version") if isinstance(record, Mapping) else type(record).__name__
            raise InputError(f"A decision log of version {LOG_VERSION} was expected. Got {given!r} instead.")
        values = {key: value for key, value in record.items() if key != "log_version"}
        try:
            values["sampler"] = Sampler(**values["sampler"])
            if isinstance(values["stop"], str):
                raise TypeError("stop is a string, not a list of strings")
            values["stop"], values["prefix"] = tuple(values["stop"]), tuple(values["prefix"])
            values["settings"] = dict(values["settings"])
            values["decisions"] = tuple(
                Decision(
                    **{
                        **item,
                        "candidates": tuple(
                            Candidate(**{**each, "ids": tuple(each["ids"])}) for each in item["candidates"]
                        ),
                    }
                )
                for item in values["decisions"]
            )
            return cls(**values)
        except (TypeError, KeyError, AttributeError) as exc:
            raise InputError(f"This record is not a decision log: {exc!r}.") from exc


def lowest(scores: Sequence[float | None]) -> int | None:
    """Return the number of the lowest score, the first of equals; ``None`` if there is none."""
    scored = [(score, number) for number, score in enumerate(scores) if score is not None]
    return min(scored)[1] if scored else None


def replay(log: DecisionLog, tokenizer: Any) -> str:
    """Return the text that the decisions lead to; no model is asked.

    Args:
        log: The decisions.
        tokenizer: That of the model which wrote.

    Raises:
        InputError: If this is no log.
        MismatchError: If the decisions do not lead to the log's text: another tokenizer, or a log that was changed.
    """
    if not isinstance(log, DecisionLog):
        raise InputError(f"The 'log' parameter of replay must be a DecisionLog. Got {type(log).__name__} instead.")
    spelling = Spelling(tokenizer)
    for number in log.ids:
        try:
            spelling.add(number)
        except OverflowError as exc:
            raise MismatchError(f"Token {number} is no tokenizer's. Replay the log as it was written.") from exc
    ended = log.decisions[-1].taken.ended if log.decisions else None
    if ended is not None:
        spelling.finish()
    text = spelling.text
    if ended == "stop":
        text = text[: len(log.text)]  # its last token may reach into the stop string
    if text != log.text:
        raise MismatchError(
            f"The decisions lead to {text!r}, and the log's text is {log.text!r}. "
            "Replay with the tokenizer of the model that wrote, and the log as it was written."
        )
    return text
