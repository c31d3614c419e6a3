"""The part of a passage to show beside a span."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from groundscope.report.verdict.wording import excerpt
from groundscope.text.sentences import split_sentences
from groundscope.verdict import Span, Verdict

_WORD = re.compile(r"\w+")


class Excerpts:
    """Finds, for a span, the sentence of a passage that shares most words with the span's own sentence.

    A word counts the less the more sentences of the passage it stands in. A help for the reader who has to
    compare the two; it plays no part in any score.
    """

    def __init__(self, verdict: Verdict) -> None:
        self._response = verdict.response
        self._passages: Sequence[str] = verdict.passages
        self._sentences: dict[int, list[tuple[str, set[str]]]] = {}

    def find(self, span: Span, passage: int, limit: int = 160) -> str:
        """Return the excerpt on one line, at most ``limit`` characters; empty if there is no such passage."""
        if not 0 <= passage < len(self._passages):
            return ""
        if passage not in self._sentences:
            text = self._passages[passage]
            pieces = [text[start:end] for start, end in split_sentences(text)]
            self._sentences[passage] = [(piece, _words(piece)) for piece in pieces]
        sought = _words(self._sentence_of(span))
        sentences = self._sentences[passage]
        frequency = Counter(word for _, words in sentences for word in words)
        weights = [sum(1 / frequency[word] for word in words & sought) for _, words in sentences]
        best = max(range(len(sentences)), key=weights.__getitem__, default=None)
        return "" if best is None else excerpt(sentences[best][0], limit)

    def _sentence_of(self, span: Span) -> str:
        for start, end in split_sentences(self._response):
            if start <= span.start < end:
                return self._response[start:end]
        return span.text


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))
