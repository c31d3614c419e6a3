"""Token offsets in code points: taken from the tokenizer, checked, and derived where it is wrong.

Offsets of fast tokenizers are wrong for some models (all tokens empty, or halves of a character), so
they are never trusted unchecked. A token that is a piece of one character gets the whole character.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from groundscope.errors import LayoutError

Offsets = npt.NDArray[np.int64]
Range = tuple[int, int]
_MAX_PIECES = 32
# White space to tokenizers, of which Python's notion (the separators U+001C to U+001F) is wider.
_SPACES = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | {chr(c) for c in range(0x2000, 0x200B)}
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def encode(tokenizer: Any, text: str, untrusted: Sequence[Range] = ()) -> tuple[list[int], Offsets]:
    """Tokenise ``text`` without adding special tokens.

    Args:
        tokenizer: A transformers tokenizer.
        text: What to tokenise.
        untrusted: Character ranges that must not become special tokens. Where one holds the name of a
            special token, the text is cut inside the name and the parts are tokenised on their own;
            the tokenizer's settings are never touched, so threads may share it.

    Returns:
        Token ids and their (token, 2) half-open code-point offsets. Characters that the tokenizer drops
        lie in no token; :func:`uncovered` finds them.

    Raises:
        LayoutError: If offsets can neither be had nor derived.
    """
    try:
        ids, offsets = _tokenise(tokenizer, text)
        cuts = _cuts(tokenizer, text, ids, offsets, untrusted) if untrusted else []
    except LayoutError:
        cuts = _around_lost(tokenizer, text)
        if not cuts:
            raise
    if not cuts:
        return ids, offsets
    ids, parts = [], []
    for start, end in pairwise((0, *cuts, len(text))):
        inside = [(max(s, start) - start, min(e, end) - start) for s, e in untrusted if s < end and start < e]
        part_ids, part_offsets = encode(tokenizer, text[start:end], inside)
        ids += part_ids
        parts.append(part_offsets + start)
    return ids, np.concatenate(parts)


def uncovered(text: str, offsets: Offsets) -> list[Range]:
    """Return the ranges of non-space characters that lie in no token."""
    bare = [i for i in np.flatnonzero(~_covered(text, offsets)).tolist() if not text[i].isspace()]
    ranges: list[Range] = []
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
        found = _match(text, position, shown) if shown else None
        # Pieces of a character are shown as U+FFFD, which the text may hold itself: take all its pieces.
        more = _decode(tokenizer, ids[first : last + 2]) if _REPLACEMENT in shown and last + 1 < len(ids) else None
        if found is None or shown == more:
            if last + 1 - first >= _MAX_PIECES:
                break
            continue
        while first < last and _decode(tokenizer, ids[first + 1 : last + 1]) == shown:
            # This token adds nothing: a mark for the beginning of the text.
            offsets[first] = found[0]
            first += 1
        offsets[first : last + 1] = found
        position, first = found[1], last + 1
    offsets[first:] = position
    if text[position:].strip() or _decode(tokenizer, ids[first:]).strip():
        raise LayoutError(
            f"The tokens of this text do not spell it from character {position} on "
            f"({text[position : position + 20]!r}), so spans cannot be located. "
            "Use the model's fast tokenizer (AutoTokenizer with a tokenizer.json)."
        )
    return offsets


def _tokenise(tokenizer: Any, text: str) -> tuple[list[int], Offsets]:
    if not text:
        return [], np.zeros((0, 2), dtype=np.int64)
    fast = bool(getattr(tokenizer, "is_fast", False))
    options: dict[str, Any] = {"add_special_tokens": False, "verbose": False}
    if getattr(tokenizer, "split_special_tokens", False):
        options["split_special_tokens"] = False
    encoded = tokenizer(text, return_offsets_mapping=fast, **options)
    ids = list(encoded["input_ids"])
    if len(text) == 1:
        return ids, np.tile(np.array([[0, 1]], dtype=np.int64), (len(ids), 1))
    if fast:
        offsets = np.asarray(encoded["offset_mapping"], dtype=np.int64).reshape(-1, 2)
        if _ordered(text, offsets):
            offsets = _with_marks(text, offsets)
            if _dropped(tokenizer, text, uncovered(text, offsets)) and not _shifted(tokenizer, text, offsets):
                return ids, offsets
    return ids, derive_offsets(tokenizer, text, ids)


def _covered(text: str, offsets: Offsets) -> npt.NDArray[np.bool_]:
    """Whether each character lies in a token."""
    depth = np.zeros(len(text) + 1, dtype=np.int64)
    np.add.at(depth, offsets[:, 0], 1)
    np.add.at(depth, offsets[:, 1], -1)
    inside: npt.NDArray[np.bool_] = np.cumsum(depth)[:-1] > 0
    return inside


def _ordered(text: str, offsets: Offsets) -> bool:
    """Whether offsets are ordered, inside the text, and overlap only in pieces of the same character."""
    starts, ends = offsets[:, 0], offsets[:, 1]
    if (starts > ends).any() or (starts < 0).any() or (ends > len(text)).any():
        return False
    if (np.diff(starts) < 0).any() or (np.diff(ends) < 0).any():
        return False
    wide = np.flatnonzero(ends[:-1] - starts[1:] > 1)
    # Some normalisers compose several code points to one character before it is cut into bytes.
    return all(len(unicodedata.normalize("NFKC", text[starts[i + 1] : ends[i]])) == 1 for i in wide)


def _with_marks(text: str, offsets: Offsets) -> Offsets:
    """Let tokens hold the marks that a normaliser joined to their last character (accents, Hangul letters)."""
    ends = np.arange(len(text) + 1)
    for start, end in uncovered(text, offsets):
        if start and len(unicodedata.normalize("NFKC", text[start - 1 : end])) == 1:
            ends[start] = end
    return np.stack([offsets[:, 0], ends[offsets[:, 1]]], axis=1)


def _dropped(tokenizer: Any, text: str, lost: Sequence[Range]) -> bool:
    """Whether the tokenizer drops these characters wherever they stand (control characters, unknown ones)."""
    if not lost:
        return True
    characters = "".join(sorted({character for start, end in lost for character in text[start:end]}))
    ids = tokenizer(characters, add_special_tokens=False, verbose=False)["input_ids"]
    return not _decode(tokenizer, list(ids)).strip()


def _shifted(tokenizer: Any, text: str, offsets: Offsets) -> bool:
    """Whether tokens lie on a character that has none.

    Byte-level vocabularies may lack bytes that their training never met (control characters, unassigned
    ones). These are dropped, and the offsets behind them in the same word count as if they were there.
    """
    rare = {c for c in set(text) - _SPACES if unicodedata.category(c) in ("Cc", "Cn", "Co")}
    lost = _lost(tokenizer, rare)
    return bool(lost) and any(text[i] in lost for i in np.flatnonzero(_covered(text, offsets)).tolist())


def _lost(tokenizer: Any, characters: set[str]) -> set[str]:
    """Those of the characters that the tokenizer has no tokens for, in whole or in part."""
    shown = {character: _decode(tokenizer, _tokenise(tokenizer, character)[0]) for character in characters}
    return {c for c, back in shown.items() if not back.strip() or (_REPLACEMENT in back and c != _REPLACEMENT)}


def _around_lost(tokenizer: Any, text: str) -> list[int]:
    """Positions before and after lost characters: cut there, what stands between them has true offsets."""
    lost = _lost(tokenizer, set(text) - _SPACES)
    places = [position for position, character in enumerate(text) if character in lost]
    return sorted({cut for place in places for cut in (place, place + 1) if 0 < cut < len(text)})


def _cuts(tokenizer: Any, text: str, ids: Sequence[int], offsets: Offsets, untrusted: Sequence[Range]) -> list[int]:
    """Positions inside the names of special tokens that untrusted text holds."""
    special = set(tokenizer.all_special_ids)
    special.update(number for number, token in tokenizer.added_tokens_decoder.items() if token.special)
    cuts: list[int] = []
    for position in np.flatnonzero(np.isin(ids, sorted(special))).tolist():
        start, end = (int(value) for value in offsets[position])
        name = text[start:end]
        if not any(s < end and start < e for s, e in untrusted):
            continue
        if ids[position] == tokenizer.unk_token_id and str(tokenizer.unk_token) not in name:
            continue
        cut = start + len(name) - len(name.lstrip()) + 1
        if cut < end:
            cuts.append(cut)
    return cuts


def _decode(tokenizer: Any, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _match(text: str, position: int, shown: str) -> Range | None:
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
