"""Token offsets in code points: taken from the tokenizer, checked, and derived where it is wrong.

Offsets of fast tokenizers are wrong for some models (all tokens empty, or halves of a character), so
they are never trusted unchecked. A token that is a piece of one character gets the whole character.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from groundscope.errors import LayoutError

Offsets = npt.NDArray[np.int64]
_MAX_PIECES = 32


def encode(tokenizer: Any, text: str, literal: bool = False) -> tuple[list[int], Offsets]:
    """Tokenise ``text`` without adding special tokens.

    Args:
        tokenizer: A transformers tokenizer.
        text: What to tokenise.
        literal: Read the names of special tokens in ``text`` as ordinary text, as untrusted text must be.

    Returns:
        Token ids and their (token, 2) half-open code-point offsets.

    Raises:
        LayoutError: If offsets can neither be had nor derived.
    """
    if not text:
        return [], np.zeros((0, 2), dtype=np.int64)
    options: dict[str, Any] = {"add_special_tokens": False, "verbose": False}
    if literal and holds_special_token(tokenizer, text):
        options["split_special_tokens"] = True
    if getattr(tokenizer, "is_fast", False):
        encoded = tokenizer(text, return_offsets_mapping=True, **options)
        offsets = np.asarray(encoded["offset_mapping"], dtype=np.int64).reshape(-1, 2)
        if offsets_fit(text, offsets):
            return list(encoded["input_ids"]), offsets
        ids = list(encoded["input_ids"])
    else:
        ids = list(tokenizer(text, **options)["input_ids"])
    return ids, derive_offsets(tokenizer, text, ids)


def holds_special_token(tokenizer: Any, text: str) -> bool:
    """Whether the name of a special token stands in the text."""
    return any(token in text for token in tokenizer.all_special_tokens if token)


def offsets_fit(text: str, offsets: Offsets) -> bool:
    """Whether offsets are ordered, inside the text, and cover all of it but white space.

    Two tokens may overlap only where they are pieces of the same character.
    """
    starts, ends = offsets[:, 0], offsets[:, 1]
    if len(offsets) == 0 or (starts > ends).any() or (starts < 0).any() or (ends > len(text)).any():
        return False
    if (np.diff(starts) < 0).any() or (np.diff(ends) < 0).any():
        return False
    overlap = starts[1:] < ends[:-1]
    if (overlap & (ends[:-1] - starts[1:] > 1)).any():
        return False
    return not uncovered(text, offsets)


def uncovered(text: str, offsets: Offsets) -> list[tuple[int, int]]:
    """Return the ranges of non-space characters that lie in no token."""
    inside = np.zeros(len(text) + 1, dtype=np.int64)
    np.add.at(inside, offsets[:, 0], 1)
    np.add.at(inside, offsets[:, 1], -1)
    bare = [i for i in np.flatnonzero(np.cumsum(inside)[:-1] == 0).tolist() if not text[i].isspace()]
    ranges: list[tuple[int, int]] = []
    for i in bare:
        if ranges and ranges[-1][1] == i:
            ranges[-1] = (ranges[-1][0], i + 1)
        else:
            ranges.append((i, i + 1))
    return ranges


def derive_offsets(tokenizer: Any, text: str, ids: list[int]) -> Offsets:
    """Find each token's characters by decoding tokens until whole characters appear.

    Raises:
        LayoutError: If the decoded tokens do not spell the text.
    """
    offsets = np.zeros((len(ids), 2), dtype=np.int64)
    position = first = 0
    for last in range(len(ids)):
        shown = _decode(tokenizer, ids[first : last + 1])
        found = _match(text, position, shown)
        if found is None:
            if last + 1 - first >= _MAX_PIECES:
                break
            continue
        offsets[first : last + 1] = found
        position, first = found[1], last + 1
    if first < len(ids) or not (text[position:].isspace() or position == len(text)) or uncovered(text, offsets):
        raise LayoutError(
            f"The tokens of this text do not spell it from character {position} on "
            f"({text[position : position + 20]!r}), so spans cannot be located. "
            "Use the model's fast tokenizer (AutoTokenizer with a tokenizer.json)."
        )
    return offsets


def _decode(tokenizer: Any, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _match(text: str, position: int, shown: str) -> tuple[int, int] | None:
    """Range of ``shown`` at ``position``, where decoding may have dropped or added white space before it."""
    if text.startswith(shown, position):
        return position, position + len(shown)
    bare = shown.lstrip()
    start = position
    while start < len(text) and text[start].isspace():
        start += 1
    if not bare:
        return position, position
    if text.startswith(bare, start):
        return position, start + len(bare)
    return None
