"""Layout: prompt and response as token ids, cut into segments, with offsets for every response token."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from groundscope.errors import LayoutError
from groundscope.lm.prompt.chunks import Chunks
from groundscope.lm.prompt.offsets import Offsets

Ids = npt.NDArray[np.int64]
SegmentKind = Literal["system", "instruction", "passage", "question", "header", "response"]


@dataclass(frozen=True)
class Segment:
    """Tokens [start, end) of prompt + response and what they are; ``index`` numbers the passages."""

    kind: SegmentKind
    start: int
    end: int
    index: int = -1


@dataclass(frozen=True, eq=False)
class Layout:
    """One prompt and one response as the model reads them.

    The response is tokenised on its own and appended, so that its ids are the same under every prompt.

    Attributes:
        prompt_ids: (P,) token ids of the prompt, generation header included.
        response_ids: (T,) token ids of the response.
        passages: Token range of each passage in the prompt, in order.
        header: Token range of the generation header: what opens the assistant's turn.
        contrast_prompt_ids: The same prompt around random documents, one entry per document.
        response: The response's text; ``None`` if the layout was made from ids alone.
        response_offsets: (T, 2) code-point offsets of the response tokens; ``None`` without a text.
        segments: All segments, prompt and response, in order.
        passage_numbers: For each entry of ``passages``, which passage of the example it belongs to.
        contrast: How the random documents were drawn.
        passage_texts: The text behind each entry of ``passages``; empty for layouts made from ids.
        passage_offsets: For each of them, the (token, 2) code-point offsets of its tokens.
        chunks: Stretches of passages and response to be compared; ``None`` for passages and response as they are.
    """

    prompt_ids: Ids
    response_ids: Ids
    passages: tuple[tuple[int, int], ...]
    header: tuple[int, int]
    contrast_prompt_ids: tuple[Ids, ...] = ()
    response: str | None = None
    response_offsets: Offsets | None = None
    segments: tuple[Segment, ...] = ()
    passage_numbers: tuple[int, ...] = ()
    contrast: Mapping[str, Any] = field(default_factory=dict)
    passage_texts: tuple[str, ...] = ()
    passage_offsets: tuple[Offsets, ...] = ()
    chunks: Chunks | None = None

    def __post_init__(self) -> None:
        if len(self.prompt_ids) == 0:
            raise LayoutError("A layout needs a prompt of at least one token. Got an empty prompt instead.")
        length = len(self.prompt_ids)
        end = 0
        for start, stop in self.passages:
            if not end <= start <= stop <= length:
                raise LayoutError(
                    f"Passages must be ordered, disjoint token ranges inside the prompt (length {length}). "
                    f"Got {list(self.passages)} instead."
                )
            end = stop
        start, stop = self.header
        if not (end <= start <= stop == length):
            raise LayoutError(
                f"The header must be a token range after the passages that ends with the prompt (at {length}). "
                f"Got ({start}, {stop}) instead."
            )
        if any(len(ids) == 0 for ids in self.contrast_prompt_ids):
            raise LayoutError("A contrast prompt needs at least one token. Got an empty one instead.")
        self._check_offsets()
        if self.chunks is not None:
            self.chunks.check(length, len(self.response_ids))

    @classmethod
    def from_ids(
        cls,
        prompt_ids: Sequence[int] | Ids,
        response_ids: Sequence[int] | Ids,
        *,
        passages: Sequence[tuple[int, int]] = (),
        header: tuple[int, int] | None = None,
        contrast_prompt_ids: Sequence[Any] | Ids | None = None,
        response: str | None = None,
        response_offsets: Offsets | None = None,
    ) -> Layout:
        """Build a layout from token ids.

        Args:
            prompt_ids: (P,) ids of the prompt.
            response_ids: (T,) ids of the response.
            passages: Half-open token ranges of the passages in the prompt.
            header: Half-open token range of the generation header; by default empty, at the prompt's end.
            contrast_prompt_ids: Ids of one prompt around a random document, or a list of such prompts.
            response: The response's text, if known.
            response_offsets: (T, 2) code-point offsets into it.

        Raises:
            LayoutError: If ids are not one-dimensional integers, or ranges do not fit the prompt.
        """
        prompt = _as_ids("prompt_ids", prompt_ids)
        contrasts = _as_prompts(contrast_prompt_ids)
        if response is not None and not isinstance(response, str):
            raise LayoutError(f"The 'response' parameter of Layout must be a string or None. Got {response!r} instead.")
        ranges = _as_ranges(passages)
        return cls(
            prompt_ids=prompt,
            response_ids=_as_ids("response_ids", response_ids),
            passages=ranges,
            header=(len(prompt), len(prompt)) if header is None else _as_range("header", header),
            contrast_prompt_ids=contrasts,
            response=response,
            response_offsets=None if response_offsets is None else _as_offsets(response_offsets),
            passage_numbers=tuple(range(len(ranges))),
        )

    def _check_offsets(self) -> None:
        offsets = self.response_offsets
        if offsets is None:
            return
        if self.response is None:
            raise LayoutError("Response offsets need the response's text. Got no 'response'.")
        wanted = f"({len(self.response_ids)}, 2) integers, 0 <= start <= end <= {len(self.response)}"
        array = np.asarray(offsets)
        if array.shape != (len(self.response_ids), 2) or not np.issubdtype(array.dtype, np.integer):
            raise LayoutError(
                f"Response offsets must be {wanted}. Got shape {array.shape}, type {array.dtype} instead."
            )
        outside = (array[:, 0] < 0) | (array[:, 0] > array[:, 1]) | (array[:, 1] > len(self.response))
        if outside.any():
            raise LayoutError(f"Response offsets must be {wanted}. Got {array[outside][0].tolist()} instead.")

    @property
    def prompt_length(self) -> int:
        """Tokens in the prompt."""
        return len(self.prompt_ids)

    @property
    def response_length(self) -> int:
        """Tokens in the response."""
        return len(self.response_ids)

    @property
    def passage_tokens(self) -> int:
        """Tokens in all passages together."""
        return sum(end - start for start, end in self.passages)

    def common_prefix(self, other: Sequence[int] | Ids) -> int:
        """Return how many leading prompt tokens another prompt shares."""
        other_ids = np.asarray(other)
        length = min(len(self.prompt_ids), len(other_ids))
        different = np.flatnonzero(self.prompt_ids[:length] != other_ids[:length])
        return int(different[0]) if len(different) else length


def _as_prompts(prompts: object) -> tuple[Ids, ...]:
    """One prompt or several, as ids."""
    if prompts is None:
        return ()
    # Tensors are no Sequence, but have a length and an order.
    ordered = isinstance(prompts, Sequence) or hasattr(prompts, "__array__")
    if not ordered or isinstance(prompts, (str, bytes)) or getattr(prompts, "ndim", 1) == 0:
        raise LayoutError(
            "The 'contrast_prompt_ids' parameter of Layout must be a list of token ids, or a list of such lists. "
            f"Got {prompts!r} instead."
        )
    rows: Any = prompts
    if len(rows) == 0:
        return ()
    nested = isinstance(rows[0], Sequence) or getattr(rows[0], "ndim", 0) > 0
    return tuple(_as_ids("contrast_prompt_ids", row) for row in (rows if nested else [rows]))


def _as_offsets(offsets: object) -> Offsets:
    try:
        return np.asarray(offsets)
    except ValueError as exc:
        raise LayoutError(f"Response offsets must be (T, 2) integers. Got {exc}.") from exc


def _as_ids(name: str, values: Sequence[int] | Ids) -> Ids:
    try:
        ids = np.asarray(values)
    except (TypeError, ValueError) as exc:
        raise LayoutError(
            f"The {name!r} parameter of Layout must be a one-dimensional sequence of integers. Got {exc}."
        ) from exc
    if ids.ndim != 1 or (ids.size and not np.issubdtype(ids.dtype, np.integer)):
        raise LayoutError(
            f"The {name!r} parameter of Layout must be a one-dimensional sequence of integers. "
            f"Got shape {ids.shape}, type {ids.dtype} instead."
        )
    ids = ids.astype(np.int64)
    if ids.size and ids.min() < 0:
        raise LayoutError(f"The {name!r} parameter of Layout must hold token ids >= 0. Got {int(ids.min())} instead.")
    return ids


def _as_ranges(passages: object) -> tuple[tuple[int, int], ...]:
    if isinstance(passages, (str, bytes)) or not isinstance(passages, (Sequence, np.ndarray)):
        raise LayoutError(
            "The 'passages' parameter of Layout must be a list of token ranges (start, end); () for none. "
            f"Got {passages!r} instead."
        )
    return tuple(_as_range("passages", item) for item in passages)


def _as_range(name: str, value: Sequence[int]) -> tuple[int, int]:
    try:
        start, end = (operator.index(item) for item in value)
    except (TypeError, ValueError) as exc:
        raise LayoutError(
            f"The {name!r} parameter of Layout must hold half-open token ranges (start, end) of integers. "
            f"Got {value!r} instead."
        ) from exc
    return start, end
