"""From examples to traces: prompts laid out, random documents drawn, one set of passes for several detectors."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from groundscope.data.contrast import draw_contrasts
from groundscope.detectors.base import Detector, describe
from groundscope.detectors.learnable import LearnedDetector
from groundscope.errors import ContextTooLongError, GroundscopeError, InputError, UnsupportedModelError
from groundscope.example import Example
from groundscope.lm.chunking import attach_chunks
from groundscope.lm.language_model import LanguageModel
from groundscope.lm.prompt.layout import Layout
from groundscope.lm.prompt.render import LongContext, resolve_layouts
from groundscope.lm.prompt.template import PromptTemplate
from groundscope.text.refusals import is_refusal
from groundscope.text.visible import content_of
from groundscope.trace.engine import check_support, trace_each
from groundscope.trace.signals import sources_of
from groundscope.trace.trace import FloatArray, Trace
from groundscope.trace.traced import TracedExample

ContrastSource = Literal["auto", "pool", "examples"]
# Characters by which a random document is named.
_BEGINNING = 60
_log = logging.getLogger(__name__)
UnreadOutcome = Literal["no_answer", "no_context", "too_long", "failed"]


@dataclass(frozen=True)
class Unread:
    """Why an example has no trace.

    Attributes:
        outcome: As in a verdict.
        message: The same in words.
        id: The example's identifier.
    """

    outcome: UnreadOutcome
    message: str
    id: str | None = None


class Reader:
    """Lets one model read examples for one or several detectors.

    Args:
        lm: The model that reads.
        detectors: Whose signals are wanted; their union is read once.
        signals: Further signals.
        template: The prompt around question and passages.
        long_context: See :class:`groundscope.scope.Scope`; likewise the rest.
        contrast: Where random documents come from.
        seed: Seed of that draw.
        batch_size: At most so many sequences in one pass.
        fingerprint: Whether traces say what they were read by, which detectors that learn must know.
        leave_out: Whether detectors that the model cannot serve are left out, with a warning, and not refused.

    Raises:
        InputError: If a detector that is to learn names heads or layers that the model does not have.
    """

    def __init__(
        self,
        lm: LanguageModel,
        detectors: Sequence[Detector],
        *,
        signals: Sequence[str] = (),
        template: PromptTemplate | None = None,
        long_context: LongContext = "refuse",
        contrast: ContrastSource = "auto",
        seed: int = 0,
        batch_size: int = 8,
        fingerprint: bool = False,
        leave_out: bool = False,
    ) -> None:
        self.lm = lm
        self.detectors = tuple(_supported(lm, detectors) if leave_out else detectors)
        for detector in self.detectors:
            if (
                isinstance(detector, LearnedDetector)
                and not detector.is_fitted
                and "attention" not in lm.anatomy.problems
            ):
                detector.check_model(len(lm.anatomy.layers), lm.anatomy.attention_layers, lm.anatomy.heads)
        self.template = template or PromptTemplate()
        self.long_context = long_context
        self.contrast = contrast
        self.seed = seed
        self.batch_size = batch_size
        wanted = [name for detector in self.detectors for name in detector.signals]
        self.signals = tuple(dict.fromkeys([*wanted, *signals]))
        self.documents = max([1, *(detector.documents for detector in self.detectors)])
        self._renderer = lm.renderer(self.template)
        self._with_contrast = "contrast" in sources_of(self.signals)
        self._match_length = any(detector.match_length for detector in self.detectors)
        self._fingerprint = fingerprint
        chunkings = {detector.chunking for detector in self.detectors if detector.chunking is not None}
        if len(chunkings) > 1:
            raise InputError(
                "Detectors that are read together must cut text into the same chunks. "
                f"Got {sorted(map(repr, chunkings))}; "
                "read them one after the other."
            )
        self.chunking = next(iter(chunkings), None)

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """What traces of this reader are of; see ``LanguageModel.fingerprint``."""
        return self.lm.fingerprint(self.template)

    def read(self, examples: Sequence[Example], others: Sequence[Example] = ()) -> list[list[Trace] | Unread]:
        """Read examples; one that fails harms no other.

        Args:
            examples: What to read.
            others: Where random documents may come from.

        Returns:
            Per example its traces, more than one where passages were packed into several prompts, or why not.
        """
        found: dict[int, Unread] = {}
        layouts: dict[int, list[Layout]] = {}
        for index, example in enumerate(examples):
            early = nothing_to_read(example)
            if early is not None:
                found[index] = early
                continue
            try:
                layouts[index] = self._layouts(example, others)
            except GroundscopeError as exc:
                found[index] = _unread(exc, example)
        flat = [(index, layout) for index, parts in layouts.items() for layout in parts]
        results = trace_each(self.lm, [layout for _, layout in flat], self.signals, batch_size=self.batch_size)
        traces: dict[int, list[Trace]] = {index: [] for index in layouts}
        for (index, layout), result in zip(flat, results, strict=True):
            example = examples[index]
            if index in found:
                continue
            if not isinstance(result, Trace):
                found[index] = _unread(result, example)
                continue
            try:
                traces[index].append(self._completed(result, example, layout))
            except GroundscopeError as exc:
                found[index] = _unread(exc, example)
        return [found[index] if index in found else traces[index] for index in range(len(examples))]

    def read_many(
        self, examples: Iterable[Example], others: Sequence[Example] = ()
    ) -> Iterator[TracedExample | Unread]:
        """Read a stream in blocks; what comes out is in order.

        An example whose passages need several prompts is unread here: what is learnt from a token, and what
        it is measured by, must be one trace.
        """
        block: list[Example] = []
        for example in examples:
            block.append(example)
            if len(block) == self.batch_size:
                yield from self._traced(block, others)
                block = []
        yield from self._traced(block, others)

    def _traced(self, block: Sequence[Example], others: Sequence[Example]) -> Iterator[TracedExample | Unread]:
        for example, result in zip(block, self.read(block, others), strict=True):
            if isinstance(result, Unread):
                yield result
            elif len(result) > 1:
                yield Unread("too_long", "The passages need several prompts.", example.id)
            else:
                yield TracedExample(example, result[0])

    def _completed(self, trace: Trace, example: Example, layout: Layout) -> Trace:
        """Add what detectors gather themselves, and what the trace is of."""
        extra: dict[str, FloatArray] = {}
        for detector in self.detectors:
            if detector.own_signals:
                try:
                    extra.update(detector.gather(self.lm, example, layout))
                except GroundscopeError:
                    raise
                except Exception as exc:  # whatever a foreign detector raises
                    raise InputError(f"The detector {detector.name!r} failed in gather: {describe(exc)}.") from exc
        if extra:
            trace = replace(trace, signals={**trace.signals, **extra})
        return replace(trace, fingerprint=self.fingerprint) if self._fingerprint else trace

    def prompt(self, example: Example, subject: str, *, reserve: int = 1) -> Layout:
        """Lay out the prompt that an example's response will follow, random documents included.

        Args:
            example: Question and passages; no other examples are at hand.
            subject: What is being read, for messages.
            reserve: Tokens that must still fit behind it.

        Raises:
            InputError: If random documents were to come from other examples.
            ContextTooLongError: If the prompt leaves no room.
        """
        if self._with_contrast and self.contrast == "examples":
            raise InputError(
                f"{subject} has no other examples to draw a random document from. Use contrast='pool' or 'auto'."
            )
        contrasts, info = self._documents(example, ())
        if contrasts:  # scoring the finished text draws by the response too, so the verdict names this one
            info = {**info, "drawn": "before the response", "begins": contrasts[0][0][:_BEGINNING]}
        return self._renderer.prompt(example.question, example.passages, contrasts, contrast_info=info, reserve=reserve)

    def _documents(self, example: Example, others: Sequence[Example]) -> tuple[list[tuple[str, ...]], dict[str, Any]]:
        """The passages of the random documents, none where nothing compares with them, and how they were drawn."""
        if not self._with_contrast:
            return [], {}
        documents = draw_contrasts(example, others, self.seed, self.documents, match_length=self._match_length)
        info = documents[0].info
        if len(documents) > 1:
            info = {**info, "documents": [document.info for document in documents]}
        return [document.passages for document in documents], info

    def _layouts(self, example: Example, others: Sequence[Example]) -> list[Layout]:
        contrasts, info = self._documents(example, () if self.contrast == "pool" else others)
        if contrasts and self.contrast == "examples" and info["source"] != "examples":
            raise InputError(
                "No other example with another context was given to draw a random document from. "
                "Use contrast='pool' or 'auto', or score several examples with score_many."
            )
        options = {"contrasts": contrasts, "contrast_info": info} if contrasts else {}
        layouts = resolve_layouts(self._renderer, example, self.long_context, **options)
        if self.chunking is not None:
            layouts = attach_chunks(self.lm, example, layouts, self.chunking)
        return layouts


def _supported(lm: LanguageModel, detectors: Sequence[Detector]) -> Iterator[Detector]:
    for detector in detectors:
        try:
            check_support(lm, detector.signals)
        except UnsupportedModelError as exc:
            _log.warning("%s is left out: %s", detector.name, exc)
        else:
            yield detector


def nothing_to_read(example: Example) -> Unread | None:
    """Return why there is nothing to be checked in an example, before any model reads it."""
    content = content_of(example.response)
    if content == "nothing":
        return Unread("no_answer", "The response is empty: it shows nothing to read.", example.id)
    if content == "marks":
        return Unread("no_answer", "The response has no letter or digit; it claims nothing.", example.id)
    if is_refusal(example.response):
        return Unread("no_answer", "The response declines to answer; it claims nothing.", example.id)
    if all(content_of(passage) == "nothing" for passage in example.passages):
        return Unread("no_context", "There is no passage to check the response against.", example.id)
    return None


def _unread(error: GroundscopeError, example: Example) -> Unread:
    return Unread("too_long" if isinstance(error, ContextTooLongError) else "failed", str(error), example.id)
