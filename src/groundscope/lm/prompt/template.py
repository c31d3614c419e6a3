"""The prompt around question and passages, as pieces that remember what they are."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal

from groundscope.errors import InputError
from groundscope.example import check_text

PieceKind = Literal["instruction", "passage", "question"]
_PLACEHOLDER = re.compile(r"\{(passages|question)\}")
_LIKE_A_PLACEHOLDER = re.compile(r"\{(?!passages\}|question\})\w*\}")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Piece:
    """A stretch of the user's turn: literal instruction, one passage, or the question.

    Attributes:
        kind: What it is.
        text: Its text, verbatim.
        index: Number of the passage; -1 for other kinds.
    """

    kind: PieceKind
    text: str
    index: int = -1


@dataclass(frozen=True)
class PromptTemplate:
    """How question and passages become the user's turn.

    Attributes:
        user: The user's turn; ``{passages}`` once, ``{question}`` at most once.
        user_without_question: Used where the question is empty (summaries); ``{passages}`` once.
        separator: Between two passages.
        system: System message; ``None`` leaves it to the model's chat template.
        plain_header: Opens the answer for tokenizers without a chat template.

    Raises:
        InputError: If a placeholder is missing, repeated or not allowed.
    """

    user: str = (
        "Answer the question using only the information in the context.\n\nContext:\n{passages}\n\nQuestion: {question}"
    )
    user_without_question: str = "Summarize the information in the context.\n\nContext:\n{passages}"
    separator: str = "\n\n"
    system: str | None = None
    plain_header: str = "\n\nAnswer:"

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name != "system" or value is not None:
                check_text(name, value)
        _check("user", self.user, {"passages": (1, 1), "question": (0, 1)})
        _check("user_without_question", self.user_without_question, {"passages": (1, 1), "question": (0, 0)})

    @classmethod
    def from_file(cls, path: str | Path) -> PromptTemplate:
        """Read a template: a ``.json`` file with the fields above, or a text file that is the user's turn.

        Line ends at the end of a text file belong to the file, not to the turn.

        Raises:
            InputError: If the file cannot be read or is no template.
        """
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as exc:
            raise InputError(f"The template file {path} cannot be read: {exc}.") from exc
        if path.suffix.lower() == ".json":
            values = _fields_from(path, text, {item.name for item in fields(cls)})
        else:
            text = text.rstrip("\n")
            for name in dict.fromkeys(_LIKE_A_PLACEHOLDER.findall(text)):
                _log.warning(
                    "The template file %s holds %s, which is no placeholder and stays in the prompt.", path, name
                )
            bare = _PLACEHOLDER.sub(lambda m: "" if m[1] == "question" else m[0], text)
            values = {"user": text, "user_without_question": bare}
        try:
            return cls(**values)
        except InputError as exc:
            raise InputError(f"The template file {path} is no template. {exc}") from exc

    def pieces(self, question: str, passages: Sequence[str]) -> list[Piece]:
        """Cut the user's turn into pieces whose texts join to it."""
        template = self.user if question.strip() else self.user_without_question
        pieces: list[Piece] = []
        for position, part in enumerate(_PLACEHOLDER.split(template)):
            if position % 2 == 0:
                pieces.append(Piece("instruction", part))
            elif part == "question":
                pieces.append(Piece("question", question))
            else:
                for index, passage in enumerate(passages):
                    if index:
                        pieces.append(Piece("instruction", self.separator))
                    pieces.append(Piece("passage", passage, index))
        return [piece for piece in pieces if piece.text]

    def fingerprint(self) -> str:
        """Return a short hash that changes whenever the template does."""
        payload = json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(payload.encode()).hexdigest()[:16]


def _fields_from(path: Path, text: str, known: set[str]) -> dict[str, str]:
    try:
        values = json.loads(text)
    except json.JSONDecodeError as exc:
        raise InputError(f"The template file {path} is not JSON: {exc}.") from exc
    except (ValueError, RecursionError) as exc:  # a number too long, or brackets too deep, for Python's reader
        raise InputError(f"The template file {path} is not usable JSON: {exc}.") from exc
    if not isinstance(values, dict) or not set(values) <= known:
        raise InputError(f"The template file {path} must be a JSON object with fields among {sorted(known)}.")
    return values


def _check(name: str, text: str, allowed: dict[str, tuple[int, int]]) -> None:
    for placeholder, (least, most) in allowed.items():
        count = text.count("{" + placeholder + "}")
        if not least <= count <= most:
            wanted = f"{least} time(s)" if least == most else f"{least} to {most} time(s)"
            raise InputError(
                f"The {name!r} parameter of PromptTemplate must hold {{{placeholder}}} {wanted}. "
                f"Got it {count} time(s) instead."
            )
