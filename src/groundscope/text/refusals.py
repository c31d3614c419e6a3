"""Answers that claim nothing, such as "I cannot answer this from the given passages"."""

from __future__ import annotations

import re

from groundscope.text.sentences import split_sentences

_MAX_LENGTH = 240
_NOT = r"(?:can(?: ?not|'t)|could(?: not|n't)|do(?:es)?(?: not|n't)|am unable to|am not able to|'m unable to|unable to)"
_SOURCE = (
    r"(?:the |this |these |given |provided |above |available )*"
    r"(?:context|passages?|documents?|information|text|sources?)"
)
_LEARN = (
    r"(?:know|answer|find|determine|provide|"
    r"(?:say|tell)(?= *[.!]?$| (?:you|for|with|whether|if|when|who|what|where|which|why|how|from|based)\b))\b"
)
_REFUSAL = re.compile(
    rf"(?:(?:i(?:'m| am) )?(?:sorry|afraid)[,:]?(?: but)?(?: that)? )?"
    rf"(?:(?:based on|according to|from|with) {_SOURCE}[,:]? )?"
    rf"(?:(?:i |we )?{_NOT} "
    rf"(?:be (?:answered|determined|found)\b|have (?:enough|any|the|that) (?:\w+ )?information\b|{_LEARN})"
    rf"|(?:it is |it's )?(?:not possible|impossible) to {_LEARN}"
    rf"|(?:there is |there's )?no (?:relevant )?(?:answer|information)(?= *[.!]?$|[^.]* {_SOURCE}\b)"
    rf"|{_SOURCE} {_NOT} (?:contain|provide|mention|say|include|have|give|answer)\b)",
    re.IGNORECASE,
)
# What may bring in a claim after all: "The text does not say when, but it was in 1887."
_MORE = re.compile(
    r"\d|[;:\u2013\u2014]|\b(?:but|however|though|although|yet|only|except|instead|while|whereas)\b", re.IGNORECASE
)


def is_refusal(text: str) -> bool:
    """Whether a short text as a whole declines to answer.

    Every sentence must do so and say nothing else: a refusal followed by a claim is an answer. In doubt it is
    an answer, for that one is scored.
    """
    if len(text) > _MAX_LENGTH:
        return False
    sentences = [text[start:end].replace("\u2019", "'") for start, end in split_sentences(text)]
    return bool(sentences) and all(map(_declines, sentences))


def _declines(sentence: str) -> bool:
    match = _REFUSAL.match(sentence)
    return match is not None and not _MORE.search(sentence, match.end())
