"""From an example to its layout: chat template, segments, tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from groundscope.errors import ContextTooLongError, LayoutError, check_choice
from groundscope.example import Example
from groundscope.lm.prompt.layout import Ids, Layout, Segment, SegmentKind
from groundscope.lm.prompt.offsets import Offsets, encode
from groundscope.lm.prompt.template import Piece, PromptTemplate

LongContext = Literal["refuse", "chunk"]
# Tokens kept free where texts are packed by the sum of their own tokens.
_SPARE = 8
# Stands for the user's turn where its place in a chat template is looked up.
_MARK = "groundscope0user0turn"


@dataclass(frozen=True)
class _Part:
    """Characters [start, end) of the rendered prompt and what they are.

    A piece of the user's turn begins at ``origin``, before ``start`` where the template trimmed it.
    """

    kind: SegmentKind
    start: int
    end: int
    index: int = -1
    origin: int = 0


class _Prompt(NamedTuple):
    """A prompt's tokens, what they are, and where the tokens of each passage lie in its text."""

    ids: Ids
    segments: list[Segment]
    passage_offsets: tuple[Offsets, ...]


@dataclass(frozen=True)
class Renderer:
    """Turns examples into layouts for one tokenizer and template.

    Attributes:
        tokenizer: The model's tokenizer.
        template: The prompt around question and passages.
        max_length: Tokens that the model can read; ``None`` for no limit.
    """

    tokenizer: Any
    template: PromptTemplate
    max_length: int | None = None

    def layout(
        self,
        example: Example,
        contrasts: Sequence[Sequence[str]] = (),
        contrast_info: Mapping[str, Any] | None = None,
        passage_numbers: Sequence[int] | None = None,
    ) -> Layout:
        """Lay out one example.

        Args:
            example: Question, passages and a non-empty response.
            contrasts: Passages of random documents; one more prompt is made around each.
            contrast_info: How they were drawn.
            passage_numbers: Numbers of the passages in the original example, where this is a part of one.

        Raises:
            ContextTooLongError: If prompt and response exceed ``max_length``.
            LayoutError: If the template swallows the text or offsets cannot be had.
        """
        response_ids, offsets = _encode_whole(self.tokenizer, example.response)
        if not response_ids:
            raise LayoutError("The response has no tokens. Got an empty response; score it as 'no_answer' instead.")
        prompt = self.prompt(
            example.question,
            example.passages,
            contrasts,
            contrast_info=contrast_info,
            reserve=len(response_ids),
            passage_numbers=passage_numbers,
        )
        start, end = prompt.prompt_length, prompt.prompt_length + len(response_ids)
        return replace(
            prompt,
            response_ids=np.asarray(response_ids, dtype=np.int64),
            response=example.response,
            response_offsets=offsets,
            segments=(*prompt.segments, Segment("response", start, end)),
        )

    def prompt(
        self,
        question: str,
        passages: Sequence[str],
        contrasts: Sequence[Sequence[str]] = (),
        *,
        contrast_info: Mapping[str, Any] | None = None,
        reserve: int = 1,
        passage_numbers: Sequence[int] | None = None,
    ) -> Layout:
        """Lay out a prompt whose response is yet to be written: a layout without response tokens.

        Args:
            question: The question; empty for a summary.
            passages: The passages.
            contrasts: Passages of random documents; one more prompt is made around each.
            contrast_info: How they were drawn.
            reserve: Tokens to keep free for the response.
            passage_numbers: Numbers of the passages in the original example, where this is a part of one.

        Raises:
            ContextTooLongError: If prompt and reserve exceed ``max_length``.
            LayoutError: If the template swallows the text or offsets cannot be had.
        """
        prompt = self._prompt(question, passages)
        self._check_length(len(prompt.ids), reserve)
        contrast_ids = []
        for others in contrasts:
            fitting = self._fitting(question, others, reserve)
            contrast_ids.append(self._prompt(question, fitting).ids)
        header = next(segment for segment in prompt.segments if segment.kind == "header")
        found = [segment for segment in prompt.segments if segment.kind == "passage"]
        numbers = range(len(passages)) if passage_numbers is None else passage_numbers
        return Layout(
            prompt_ids=prompt.ids,
            response_ids=np.zeros(0, dtype=np.int64),
            passages=tuple((segment.start, segment.end) for segment in found),
            header=(header.start, header.end),
            contrast_prompt_ids=tuple(contrast_ids),
            segments=tuple(prompt.segments),
            passage_numbers=tuple(numbers[segment.index] for segment in found),
            contrast=dict(contrast_info or {}),
            passage_texts=tuple(passages[segment.index] for segment in found),
            passage_offsets=prompt.passage_offsets,
        )

    def chunks(self, example: Example) -> list[tuple[Example, list[int]]]:
        """Pack the passages of a long example into as few prompts as fit, in order.

        A passage that fits no prompt is cut, at white space where there is some.

        Returns:
            Per prompt, an example with a part of the passages, and their numbers in ``example``.

        Raises:
            ContextTooLongError: If question and response alone leave no room for passages.
        """
        room = self._room(example)
        queue = [(number, part) for number, text in enumerate(example.passages) for part in self._cut(text, room)]
        packed: list[tuple[Example, list[int]]] = []
        numbers: list[int] = []
        texts: list[str] = []
        used = 0
        between = self._count(self.template.separator) + 2
        for number, text in queue:
            cost = self._count(text) + between
            if texts and used + cost > room:
                packed += self._settled(example, numbers, texts)
                numbers, texts, used = [], [], 0
            numbers, texts, used = [*numbers, number], [*texts, text], used + cost
        return packed + self._settled(example, numbers, texts)

    def _settled(self, example: Example, numbers: list[int], texts: list[str]) -> list[tuple[Example, list[int]]]:
        """Split a pack until it fits: tokens of texts that are joined may be more than those of its parts."""
        part = _with_passages(example, texts)
        if not texts or self.fits(part):
            return [(part, numbers)]
        if len(texts) == 1:
            texts = self._cut(texts[0], self._count(texts[0]) // 2 + _SPARE)
            numbers = numbers * len(texts)
        if len(texts) == 1:
            return [(part, numbers)]
        half = len(texts) // 2
        return self._settled(example, numbers[:half], texts[:half]) + self._settled(
            example, numbers[half:], texts[half:]
        )

    def fits(self, example: Example) -> bool:
        """Whether the example fits the model's context as it is."""
        if self.max_length is None:
            return True
        prompt_ids = self._prompt(example.question, example.passages).ids
        return len(prompt_ids) + len(_encode_whole(self.tokenizer, example.response)[0]) <= self.max_length

    def _check_length(self, prompt: int, response: int) -> None:
        if self.max_length is not None and prompt + response > self.max_length:
            raise ContextTooLongError(prompt, response, self.max_length)

    def _room(self, example: Example) -> int:
        """Tokens left for passages beside everything else."""
        limit = self.max_length or 0
        bare = self._prompt(example.question, ("x",)).ids
        response = _encode_whole(self.tokenizer, example.response)[0]
        room = limit - len(bare) - len(response) - _SPARE
        if room < 2 * _SPARE:
            raise ContextTooLongError(
                len(bare), len(response), limit, "Question and response leave no room for passages."
            )
        return room

    def _count(self, text: str) -> int:
        return len(_encode_whole(self.tokenizer, text)[0])

    def _cut(self, text: str, room: int) -> list[str]:
        ids, offsets = _encode_whole(self.tokenizer, text)
        limit = max(room - _SPARE, 1)
        if len(ids) <= limit:
            return [text]
        parts = []
        start = 0
        while start < len(text):
            first = int(np.searchsorted(offsets[:, 1], start, side="right"))
            stop = len(text) if first + limit >= len(ids) else int(offsets[first + limit, 0])
            if stop < len(text):
                space = next((i for i in range(stop - 1, start, -1) if text[i].isspace()), None)
                stop = max(stop, start + 1) if space is None else space + 1
            parts.append(text[start:stop])
            start = stop
        return parts

    def _fitting(self, question: str, passages: Sequence[str], response: int) -> Sequence[str]:
        """Drop trailing passages of a random document, or halve the last one, until it fits."""
        kept = list(passages)
        while self.max_length is not None and kept:
            if len(self._prompt(question, kept).ids) + response <= self.max_length:
                break
            kept = kept[:-1] if len(kept) > 1 else [part for part in (kept[0][: len(kept[0]) // 2],) if part]
        return kept

    def _prompt(self, question: str, passages: Sequence[str]) -> _Prompt:
        text, parts = self._render(self.template.pieces(question, passages))
        untrusted = [(part.start, part.end) for part in parts if part.kind in ("passage", "question")]
        ids, offsets = encode(self.tokenizer, text, untrusted)
        begin = [] if getattr(self.tokenizer, "chat_template", None) else self._begin_ids()
        segments = _segments(len(begin), offsets, parts)
        origins = {part.index: part.origin for part in parts if part.kind == "passage"}
        inside = tuple(
            np.clip(offsets[s.start - len(begin) : s.end - len(begin)] - origins[s.index], 0, len(passages[s.index]))
            for s in segments
            if s.kind == "passage"
        )
        return _Prompt(np.asarray([*begin, *ids], dtype=np.int64), segments, inside)

    def _render(self, pieces: Sequence[Piece]) -> tuple[str, list[_Part]]:
        """Render the prompt; returns it and what its characters are."""
        content = "".join(piece.text for piece in pieces)
        if getattr(self.tokenizer, "chat_template", None):
            text, (start, end), header = self._render_chat(content)
        else:
            system = f"{self.template.system}\n\n" if self.template.system else ""
            text = system + content + self.template.plain_header
            start, end = len(system), len(system) + len(content)
            header = end
        # Where the template trims the turn, its outermost pieces lose characters.
        position = start - content.find(text[start:end])
        parts = [_Part("system", 0, start)]
        for piece in pieces:
            stop = position + len(piece.text)
            parts.append(_Part(piece.kind, _clip(position, start, end), _clip(stop, start, end), piece.index, position))
            position = stop
        return text, [*parts, _Part("instruction", end, header), _Part("header", header, len(text))]

    def _render_chat(self, content: str) -> tuple[str, tuple[int, int], int]:
        """Render by the chat template; returns the prompt, the range of the user's turn, and the header's start."""
        text, closed = self._apply(content)
        # The content's own text may occur elsewhere in the template, so its place is found with a mark.
        before, _, after = self._apply(_MARK)[0].partition(_MARK)
        start, end = len(before), len(text) - len(after)
        kept = text[start:end] if text.startswith(before) and text.endswith(after) and start <= end else None
        if kept not in (content, content.strip(), content.lstrip(), content.rstrip()):
            raise LayoutError(
                "The chat template changes the user's turn, so passages cannot be located in the prompt. "
                "Pass a template of your own, or load the tokenizer without its chat template."
            )
        if text.startswith(closed) and end <= len(closed) < len(text):
            return text, (start, end), len(closed)
        # No header of its own: what stands after the user's turn opens the answer.
        return text, (start, end), end

    def _apply(self, content: str) -> tuple[str, str]:
        """The prompt with and without the generation header."""
        messages = [{"role": "user", "content": content}]
        if self.template.system is not None:
            messages.insert(0, {"role": "system", "content": self.template.system})
        try:
            text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            closed = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=False)
        except Exception as exc:  # templates are programs and raise what they like
            advice = "" if self.template.system is None else " Try a prompt template without a system message."
            raise LayoutError(f"The model's chat template refused the messages: {exc}.{advice}") from exc
        return str(text), str(closed)

    def _begin_ids(self) -> list[int]:
        bos = getattr(self.tokenizer, "bos_token_id", None)
        starts = list(self.tokenizer("a")["input_ids"])[:1]
        return [bos] if bos is not None and starts == [bos] else []


def resolve_layouts(
    renderer: Renderer, example: Example, long_context: LongContext, **layout_options: Any
) -> list[Layout]:
    """Return one layout, or several for a long example under ``long_context='chunk'``.

    Raises:
        ContextTooLongError: If the example does not fit and ``long_context`` is ``'refuse'``.
    """
    check_choice("Scope", "long_context", long_context, ("refuse", "chunk"))
    if long_context == "refuse" or renderer.fits(example):
        return [renderer.layout(example, **layout_options)]
    return [
        renderer.layout(part, passage_numbers=numbers, **layout_options) for part, numbers in renderer.chunks(example)
    ]


def _with_passages(example: Example, passages: Sequence[str]) -> Example:
    return Example(question=example.question, passages=tuple(passages), response=example.response, id=example.id)


def _encode_whole(tokenizer: Any, text: str) -> tuple[list[int], Offsets]:
    return encode(tokenizer, text, [(0, len(text))])


def _clip(position: int, low: int, high: int) -> int:
    return min(max(position, low), high)


def _segments(begin: int, offsets: Offsets, parts: Sequence[_Part]) -> list[Segment]:
    """Give every prompt token to the part that holds its middle character, ``begin`` more to the first part."""
    owner = np.zeros(parts[-1].end + 1, dtype=np.int64)
    for number, part in enumerate(parts):
        owner[part.start : part.end] = number
    middle = np.maximum((offsets[:, 0] + offsets[:, 1] - 1) // 2, 0)
    owners = np.concatenate([np.zeros(begin, dtype=np.int64), np.maximum.accumulate(owner[middle])])
    segments: list[Segment] = []
    for number, part in enumerate(parts):
        start, end = (int(i) for i in np.searchsorted(owners, (number, number + 1)))
        if end > start or part.kind == "header":
            segments.append(Segment(part.kind, start, end, part.index))
    return segments
