"""From an example to its layout: chat template, segments, tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from groundscope.errors import ContextTooLongError, LayoutError, check_choice
from groundscope.example import Example
from groundscope.lm.layout import Layout, Segment, SegmentKind
from groundscope.lm.offsets import Offsets, encode, holds_special_token
from groundscope.lm.template import Piece, PromptTemplate

LongContext = Literal["refuse", "chunk"]


@dataclass(frozen=True)
class _Part:
    """Characters [start, end) of the rendered prompt and what they are."""

    kind: SegmentKind
    start: int
    end: int
    index: int = -1


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
        prompt_ids, segments = self._prompt(example.question, example.passages)
        response_ids, offsets = encode(self.tokenizer, example.response, literal=True)
        if not response_ids:
            raise LayoutError("The response has no tokens. Got an empty response; score it as 'no_answer' instead.")
        self._check_length(len(prompt_ids), len(response_ids))
        contrast_ids = []
        for passages in contrasts:
            ids, _ = self._prompt(example.question, self._fitting(example.question, passages, len(response_ids)))
            contrast_ids.append(ids)
        header = next(segment for segment in segments if segment.kind == "header")
        found = [segment for segment in segments if segment.kind == "passage"]
        numbers = range(len(example.passages)) if passage_numbers is None else passage_numbers
        end = len(prompt_ids) + len(response_ids)
        return Layout(
            prompt_ids=prompt_ids,
            response_ids=np.asarray(response_ids, dtype=np.int64),
            passages=tuple((segment.start, segment.end) for segment in found),
            header=(header.start, header.end),
            contrast_prompt_ids=tuple(contrast_ids),
            response=example.response,
            response_offsets=offsets,
            segments=(*segments, Segment("response", len(prompt_ids), end)),
            passage_numbers=tuple(numbers[segment.index] for segment in found),
            contrast=dict(contrast_info or {}),
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
        for number, text in queue:
            cost = self._count(text) + self._count(self.template.separator) + 2
            if texts and used + cost > room:
                packed.append((_with_passages(example, texts), numbers))
                numbers, texts, used = [], [], 0
            numbers, texts, used = [*numbers, number], [*texts, text], used + cost
        packed.append((_with_passages(example, texts), numbers))
        return packed

    def fits(self, example: Example) -> bool:
        """Whether the example fits the model's context as it is."""
        if self.max_length is None:
            return True
        prompt_ids, _ = self._prompt(example.question, example.passages)
        return len(prompt_ids) + len(encode(self.tokenizer, example.response, literal=True)[0]) <= self.max_length

    def _check_length(self, prompt: int, response: int) -> None:
        if self.max_length is not None and prompt + response > self.max_length:
            raise ContextTooLongError(prompt, response, self.max_length)

    def _room(self, example: Example) -> int:
        """Tokens left for passages beside everything else."""
        limit = self.max_length or 0
        bare, _ = self._prompt(example.question, ("x",))
        response = encode(self.tokenizer, example.response, literal=True)[0]
        room = limit - len(bare) - len(response) - 8
        if room < 16:
            raise ContextTooLongError(
                len(bare), len(response), limit, "Question and response leave no room for passages."
            )
        return room

    def _count(self, text: str) -> int:
        return len(encode(self.tokenizer, text, literal=True)[0])

    def _cut(self, text: str, room: int) -> list[str]:
        ids, offsets = encode(self.tokenizer, text, literal=True)
        limit = room - 8
        if len(ids) <= limit:
            return [text]
        parts = []
        start = 0
        while start < len(text):
            first = int(np.searchsorted(offsets[:, 1], start, side="right"))
            stop = len(text) if first + limit >= len(ids) else int(offsets[first + limit, 0])
            if stop < len(text):
                space = max(text.rfind(mark, start + 1, stop) for mark in (" ", "\n"))
                stop = space + 1 if space > start else max(stop, start + 1)
            parts.append(text[start:stop])
            start = stop
        return parts

    def _fitting(self, question: str, passages: Sequence[str], response: int) -> Sequence[str]:
        """Drop trailing passages of a random document, or halve the last one, until it fits."""
        kept = list(passages)
        while self.max_length is not None and kept:
            ids, _ = self._prompt(question, kept)
            if len(ids) + response <= self.max_length:
                break
            kept = kept[:-1] if len(kept) > 1 else [kept[0][: len(kept[0]) // 2]]
        return kept

    def _prompt(self, question: str, passages: Sequence[str]) -> tuple[Any, list[Segment]]:
        pieces = self.template.pieces(question, passages)
        text, parts, content = self._render(pieces)
        ids, offsets = self._encode_prompt(text, content)
        return _segments(ids, offsets, parts)

    def _render(self, pieces: Sequence[Piece]) -> tuple[str, list[_Part], tuple[int, int]]:
        """Render the prompt; returns it, what its characters are, and where the user's turn stands."""
        content = "".join(piece.text for piece in pieces)
        if getattr(self.tokenizer, "chat_template", None):
            text, header = self._render_chat(content)
        else:
            system = f"{self.template.system}\n\n" if self.template.system else ""
            text = system + content + self.template.plain_header
            header = len(text) - len(self.template.plain_header)
        start = text.rfind(content, 0, header)
        if start < 0:
            # Some templates trim the turn.
            trimmed = content.strip()
            start = text.rfind(trimmed, 0, header) - (len(content) - len(content.lstrip()))
            if not trimmed or text.rfind(trimmed, 0, header) < 0:
                raise LayoutError(
                    "The chat template changes the user's turn, so passages cannot be located in the prompt. "
                    "Pass a template of your own, or load the tokenizer without its chat template."
                )
        parts = [_Part("system", 0, max(start, 0))]
        position = start
        for piece in pieces:
            parts.append(_Part(piece.kind, max(position, 0), position + len(piece.text), piece.index))
            position += len(piece.text)
        parts.append(_Part("instruction", min(position, header), header))
        parts.append(_Part("header", header, len(text)))
        return text, parts, (max(start, 0), min(position, header))

    def _render_chat(self, content: str) -> tuple[str, int]:
        messages = [{"role": "user", "content": content}]
        if self.template.system is not None:
            messages.insert(0, {"role": "system", "content": self.template.system})
        try:
            text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            closed = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=False)
        except Exception as exc:  # templates are programs and raise what they like
            raise LayoutError(f"The model's chat template refused the messages: {exc}.") from exc
        if text.startswith(closed) and len(text) > len(closed):
            return text, len(closed)
        # No header of its own: what stands after the user's turn opens the answer.
        end = text.rfind(content.strip())
        return text, end + len(content.strip()) if end >= 0 else len(text)

    def _encode_prompt(self, text: str, content: tuple[int, int]) -> tuple[list[int], Offsets]:
        start, end = content
        begin = [] if getattr(self.tokenizer, "chat_template", None) else self._begin_ids()
        if holds_special_token(self.tokenizer, text[start:end]):
            # Untrusted text that names a special token must not become one.
            cuts = [(0, start, False), (start, end, True), (end, len(text), False)]
        else:
            cuts = [(0, len(text), False)]
        ids: list[int] = list(begin)
        offsets = [np.zeros((len(begin), 2), dtype=np.int64)]
        for left, right, literal in cuts:
            part_ids, part_offsets = encode(self.tokenizer, text[left:right], literal=literal)
            ids += part_ids
            offsets.append(part_offsets + left)
        return ids, np.concatenate(offsets)

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


def _segments(ids: list[int], offsets: Offsets, parts: Sequence[_Part]) -> tuple[Any, list[Segment]]:
    """Give every prompt token to the part that holds its middle character."""
    owner = np.zeros(parts[-1].end + 1, dtype=np.int64)
    for number, part in enumerate(parts):
        owner[part.start : part.end] = number
    middle = np.maximum((offsets[:, 0] + offsets[:, 1] - 1) // 2, 0)
    owners = np.maximum.accumulate(owner[middle])
    segments: list[Segment] = []
    for number, part in enumerate(parts):
        start, end = (int(i) for i in np.searchsorted(owners, (number, number + 1)))
        if end > start or part.kind == "header":
            segments.append(Segment(part.kind, start, end, part.index))
    return np.asarray(ids, dtype=np.int64), segments
