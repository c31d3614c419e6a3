"""From tokens to text while they come: pieces of whole characters, offsets, and strings that end an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from groundscope.errors import InputError
from groundscope.example import check_text
from groundscope.lm.prompt.offsets import Offsets

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# Tokens that may wait for the rest of a character; one has at most four bytes.
_MAX_PIECES = 8


class Spelling:
    """The text of tokens that come one by one.

    Args:
        tokenizer: The model's tokenizer; ``None`` spells every token as an empty string.

    Attributes:
        text: What can be read so far: whole characters only.
        offsets: [start, end) code points of the tokens so far; tokens that are pieces of one character have all of
            it, and those that wait for the rest of theirs are not here yet.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._recent: list[int] = []
        self._settled = 0
        self._before = ""
        self._waiting = 0
        self.text = ""
        self.offsets: list[tuple[int, int]] = []

    def add(self, token: int) -> str:
        """Add a token; returns the characters that it completes."""
        self._recent.append(token)
        self._waiting += 1
        shown = self._decode(self._recent)
        # A half character is shown as a replacement, or not at all.
        whole = shown != self._before and not shown.endswith(_REPLACEMENT)
        if not whole and self._waiting < _MAX_PIECES and self._tokenizer is not None:
            return ""
        return self._settle(shown)

    def finish(self) -> str:
        """Let tokens that wait for the rest of a character stand as they are; returns what they show."""
        return self._settle(self._decode(self._recent)) if self._waiting else ""

    def copy(self) -> Spelling:
        """Return a spelling that goes on independently."""
        other = Spelling(self._tokenizer)
        other._recent, other._settled, other._before = list(self._recent), self._settled, self._before
        other._waiting, other.text, other.offsets = self._waiting, self.text, list(self.offsets)
        return other

    def _settle(self, shown: str) -> str:
        # Decoded together with tokens before them: some tokenizers drop the space of the first token.
        known = shown.startswith(self._before)
        piece = shown[len(self._before) :] if known else self._decode(self._recent[self._settled :])
        place = (len(self.text), len(self.text) + len(piece))
        while self._waiting > 1:
            without = self._recent[: self._settled] + self._recent[self._settled + 1 :]
            if self._decode(without) != shown:
                break
            # This token adds nothing: a mark for the beginning of the text.
            self.offsets.append((place[0], place[0]))
            self._recent, self._waiting = without, self._waiting - 1
        self.offsets += [place] * self._waiting
        self.text += piece
        self._recent = self._recent[self._settled :]
        self._settled, self._waiting = len(self._recent), 0
        self._before = self._decode(self._recent)
        return piece

    def _decode(self, ids: list[int]) -> str:
        if self._tokenizer is None:
            return ""
        return str(self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


class StopStrings:
    """Strings that end an answer; they are not part of it.

    Args:
        strings: The strings; none for an answer that only the model or the budget ends.

    Raises:
        InputError: If they are no list or tuple, or one is not a string, empty, or no valid text.
    """

    def __init__(self, strings: Sequence[str] = ()) -> None:
        # An iterator would be used up by looking at it.
        listed = isinstance(strings, Sequence) and not isinstance(strings, (str, bytes))
        if not listed or any(not isinstance(item, str) or not item for item in strings):
            raise InputError(f"The 'stop' parameter must be a list of non-empty strings. Got {strings!r} instead.")
        for item in strings:
            check_text("stop", item)
        self.strings = tuple(strings)

    def find(self, text: str) -> int | None:
        """Return where the first stop string begins; ``None`` if there is none."""
        found = [place for item in self.strings if (place := text.find(item)) >= 0]
        return min(found, default=None)

    def held(self, text: str) -> int:
        """Return how many characters at the end may be the beginning of a stop string."""
        longest = max((len(item) for item in self.strings), default=1) - 1
        for count in range(min(longest, len(text)), 0, -1):
            if any(item.startswith(text[-count:]) for item in self.strings):
                return count
        return 0


def as_offsets(offsets: Sequence[tuple[int, int]], end: int) -> Offsets:
    """Return offsets as a (token, 2) array, cut at character ``end``."""
    return np.minimum(np.asarray(offsets, dtype=np.int64).reshape(-1, 2), end)
