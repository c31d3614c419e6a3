"""Texts that ask instead of telling, such as an answer that is the question over again."""

from __future__ import annotations

import re

from groundscope.text.sentences import split_sentences

_MARKS = ("?", "\uff1f", "\u061f", "\u037e", "\u055e")  # also full-width, Arabic, Greek, Armenian
_CLOSERS = "\"'\u201d\u2019\u00bb)]*_ "
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_ASKING = frozenset(
    [
        "who",
        "whom",
        "whose",
        "what",
        "which",
        "when",
        "where",
        "why",
        "how",
        "is",
        "are",
        "am",
        "was",
        "were",
        "do",
        "does",
        "did",
        "can",
        "could",
        "will",
        "would",
        "shall",
        "should",
        "may",
        "might",
        "must",
        "has",
        "have",
        "had",
    ]
)


def only_asks(text: str, question: str = "") -> bool:
    """Whether a text, or the beginning of one, does nothing but ask.

    Every sentence must end with a question mark; one that is not finished asks if it opens with the first two words of
    the question, and the first of these is an English word that questions begin with: "Who wrote" for "Who wrote the
    novel?", but not "The tower" for "The tower was completed when?". In doubt it tells.

    Args:
        text: What is looked at.
        question: What it is an answer to, if known.
    """
    sentences = [text[start:end] for start, end in split_sentences(text)]
    opening = _opening(question)
    asks = [part.rstrip(_CLOSERS).endswith(_MARKS) for part in sentences]
    if sentences and not asks[-1] and opening is not None:
        asks[-1] = _opening(sentences[-1]) == opening
    return bool(asks) and all(asks)


def _opening(text: str) -> tuple[str, str] | None:
    """The first two words, if the first is one that questions begin with."""
    words = [match.group().casefold() for match, _ in zip(_WORD.finditer(text), range(2), strict=False)]
    return (words[0], words[1]) if len(words) == 2 and words[0] in _ASKING else None
