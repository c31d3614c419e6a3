"""Answers that claim nothing, such as "I cannot answer this from the given passages"."""

from __future__ import annotations

import re

from groundscope.text.sentences import split_sentences

_MAX_LENGTH = 240
_SOURCE = r"(?:the |this |these |given |provided |above )*(?:context|passages?|documents?|information|text|sources?)"
_REFUSAL = re.compile(
    r"^(?:"
    r"(?:i(?:'m| am) )?(?:sorry|afraid)\b.{0,40}(?:can(?:no|')t|unable|not|don't|do not)\b"
    r"|i(?:'m| am) (?:unable|not able) to (?:answer|find|provide|determine)"
    r"|(?:i )?(?:don't|do not|can(?:no|')t|cannot|could not|couldn't) (?:know|answer|find|determine|provide|say|tell)\b"
    r"|(?:unable|not able) to (?:answer|find|determine|provide)"
    r"|no (?:answer|information|relevant information)\b"
    rf"|(?:based on|according to|from|with) {_SOURCE}[,:]? "
    r"(?:i |it is |it's )?(?:unable|cannot|can't|not possible|impossible)"
    rf"|{_SOURCE} (?:do(?:es)?(?: not|n't)) (?:contain|provide|mention|say|include|have|give|answer)"
    r")",
    re.IGNORECASE,
)


def is_refusal(text: str) -> bool:
    """Whether a short text as a whole declines to answer.

    Every sentence must do so: a refusal followed by a claim is an answer.
    """
    if len(text) > _MAX_LENGTH:
        return False
    sentences = [text[start:end].replace("\u2019", "'") for start, end in split_sentences(text)]
    return bool(sentences) and all(_REFUSAL.match(sentence) for sentence in sentences)
