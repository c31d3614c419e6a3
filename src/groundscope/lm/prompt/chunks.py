"""Chunks of a layout: stretches of passages and response as token ranges, and how similar their texts are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from groundscope.errors import LayoutError

Range = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Chunks:
    """Stretches of the passages and of the response.

    Attributes:
        passages: Token ranges in the prompt, in order; neighbours may overlap.
        response: Token ranges of the response; together they are all of it, and none overlaps.
        similarity: (response chunk, passage chunk) similarity of the texts; ``None`` to compare what the reading
            model made of them.
    """

    passages: tuple[Range, ...]
    response: tuple[Range, ...]
    similarity: npt.NDArray[np.float32] | None = None

    def check(self, prompt: int, response: int) -> None:
        """Refuse chunks that do not fit a prompt and a response of so many tokens.

        Raises:
            LayoutError: If they do not.
        """
        if any(not 0 <= start < end <= prompt for start, end in self.passages):
            raise LayoutError(
                f"Passage chunks must be non-empty token ranges inside the prompt (length {prompt}). "
                f"Got {list(self.passages)} instead."
            )
        borders = [0, *(end for _, end in self.response)]
        whole = borders[-1] == response and all(
            start == before < end for (start, end), before in zip(self.response, borders, strict=False)
        )
        if not whole:
            raise LayoutError(
                f"Response chunks must be token ranges that cut the response (length {response}) into pieces. "
                f"Got {list(self.response)} instead."
            )
        shape = (len(self.response), len(self.passages))
        if self.similarity is not None and (
            np.shape(self.similarity) != shape or not np.isfinite(self.similarity).all()
        ):
            raise LayoutError(
                f"The similarity of chunks must be a finite array of shape {shape}. "
                f"Got shape {np.shape(self.similarity)} instead."
            )
