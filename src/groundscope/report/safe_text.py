"""Text written by others, made safe to show.

Responses and passages may hold characters that drive a terminal (ESC), vanish in HTML (NUL) or reorder
what stands around them (bidirectional overrides). They are shown by name instead. Tab and line feed stay,
and so do the joiners and direction marks that ordinary text in many languages needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def escape_name(char: str) -> str:
    r"""Return the name under which a hidden character is shown, such as ``\x1b`` or ``\u202e``."""
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def visible(text: str) -> str:
    """Replace every character that must not reach a terminal or a page by its name."""
    return _HIDDEN.sub(lambda match: escape_name(match[0]), text)


def split_hidden(text: str) -> Iterator[tuple[str, bool]]:
    """Cut a text into pieces ``(piece, hidden)``; a hidden piece is one character to be shown by name."""
    position = 0
    for match in _HIDDEN.finditer(text):
        if match.start() > position:
            yield text[position : match.start()], False
        yield match[0], True
        position = match.end()
    if position < len(text):
        yield text[position:], False
