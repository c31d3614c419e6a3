"""The same response read under other passages: those given, a random document in their place, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from groundscope.detectors.base import Detector
from groundscope.errors import ContextTooLongError, GroundscopeError, InputError, UnsupportedModelError
from groundscope.example import Example
from groundscope.lm.language_model import LanguageModel
from groundscope.lm.prompt.layout import Layout
from groundscope.lm.prompt.template import PromptTemplate
from groundscope.trace.engine import trace_each
from groundscope.trace.trace import FloatArray, Trace

Passages = Sequence[str]


@dataclass(frozen=True)
class ConditionReader:
    """Lets one model read examples under passages of the caller's choice, also under none.

    Attributes:
        lm: The model that reads.
        signals: What is read.
        template: The prompt around question and passages.
        batch_size: At most so many sequences in one pass.
        detectors: Whose own signals are gathered, too.
    """

    lm: LanguageModel
    signals: Sequence[str]
    template: PromptTemplate = field(default_factory=PromptTemplate)
    batch_size: int = 8
    detectors: tuple[Detector, ...] = ()

    def read(
        self, examples: Sequence[Example], passages: Sequence[Passages], contrasts: Sequence[Sequence[Passages]]
    ) -> list[Trace | GroundscopeError]:
        """Read each example under its passages; one that fails yields its error and harms no other.

        Args:
            examples: Questions and responses.
            passages: Per example, what takes the place of its passages; empty for none.
            contrasts: Per example, the random documents that it is compared with.
        """
        renderer = self.lm.renderer(self.template)
        results: list[Trace | GroundscopeError | None] = []
        layouts: list[tuple[Example, Layout]] = []
        for example, given, others in zip(examples, passages, contrasts, strict=True):
            shown = replace(example, passages=tuple(given))
            try:
                layouts.append((shown, renderer.layout(shown, contrasts=others)))
                results.append(None)
            except GroundscopeError as exc:
                results.append(exc)
        read = iter(
            self._gathered(shown, layout, trace)
            for (shown, layout), trace in zip(
                layouts,
                trace_each(self.lm, [layout for _, layout in layouts], self.signals, batch_size=self.batch_size),
                strict=True,
            )
        )
        return [next(read) if result is None else result for result in results]

    def _gathered(self, example: Example, layout: Layout, trace: Trace | GroundscopeError) -> Trace | GroundscopeError:
        if not isinstance(trace, Trace):
            return trace
        extra: dict[str, FloatArray] = {}
        try:
            for detector in self.detectors:
                if detector.own_signals:
                    extra |= detector.gather(self.lm, example, layout)
        except GroundscopeError as exc:
            return exc
        return replace(trace, signals={**trace.signals, **extra}) if extra else trace

    @torch.no_grad()
    def answer_without_passages(self, example: Example, max_new_tokens: int) -> Example:
        """Return the example with what the model itself answers when it is shown no passage.

        The prompt is the template's with nothing in the place of the passages; decoding is greedy, so the answer is
        the same every time.

        Raises:
            InputError: If there is no question to answer.
            UnsupportedModelError: If the model cannot generate.
            ContextTooLongError: If there is no room for the answer.
        """
        from transformers import GenerationConfig

        if not example.question.strip():
            raise InputError(f"Example {example.id!r} has no question that could be answered without passages.")
        if not hasattr(self.lm.model, "generate"):
            raise UnsupportedModelError(f"{self.lm.name} cannot generate, so it has no answers without passages.")
        bare = replace(example, passages=(), response="x", labels=None, hallucinated=None)
        prompt = self.lm.renderer(self.template).layout(bare).prompt_ids
        limit = self.lm.max_length
        if limit is not None and len(prompt) + max_new_tokens > limit:
            raise ContextTooLongError(len(prompt), max_new_tokens, limit)
        ids = torch.from_numpy(prompt)[None].to(self.lm.device)
        known = getattr(self.lm.model, "generation_config", None)
        stops = getattr(known, "eos_token_id", None)
        if stops is None:
            stops = self.lm.tokenizer.eos_token_id
        first = stops[0] if isinstance(stops, list) else stops
        # What a model's own settings say about sampling and repetition must not decide what it answers here.
        config = GenerationConfig(
            do_sample=False,
            num_beams=1,
            repetition_penalty=1.0,
            no_repeat_ngram_size=0,
            max_new_tokens=max_new_tokens,
            eos_token_id=stops,
            pad_token_id=0 if first is None else first,
        )
        with self.lm.tap.open(attention=False):  # evaluation mode, also where the model was left in training mode
            found = self.lm.model.generate(  # type: ignore[operator]
                ids, attention_mask=torch.ones_like(ids), generation_config=config
            )
        text = self.lm.tokenizer.decode(found[0, len(prompt) :], skip_special_tokens=True)
        return example.with_response(str(text).strip())
