"""Scope: a model and a detector joined; text in, verdicts out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from groundscope.assembly import Assembler
from groundscope.detectors.base import Detector, check_detector, describe
from groundscope.detectors.learnable import LearnedDetector
from groundscope.detectors.saved.folder import resolve_detector
from groundscope.detectors.saved.profile import Profile, with_lines
from groundscope.detectors.thresholds import reference_threshold
from groundscope.doors import open_door
from groundscope.errors import (
    GroundscopeError,
    InputError,
    PrerequisiteError,
    UnknownNameError,
    check_choice,
    check_count,
    is_finite,
)
from groundscope.example import Example
from groundscope.incoming import BadExample, as_example, in_blocks
from groundscope.lm.language_model import LanguageModel, check_source
from groundscope.lm.prompt.render import LongContext
from groundscope.lm.prompt.template import PromptTemplate
from groundscope.reading import ContrastSource, Reader, Unread
from groundscope.verdict import Threshold, Verdict

if TYPE_CHECKING:
    import torch

    from groundscope.mitigate.answering.answer import Generation

DEFAULT_MODEL = "smollm2-135m"
DEFAULT_DETECTOR = "contrast"


class Scope:
    """Scores responses with one model and one detector.

    Args:
        lm: The model that reads.
        detector: A detector, its name, or the folder of a trained one.
        threshold: Where to flag a response; by default what a trained detector brings with it, else measured
            on a shipped sample of faithful answers.
        span_threshold: Where to report a span. If only one of the two is given, the other is the detector's
            neutral score, or the same number for detectors that have none.
        template: The prompt around question and passages.
        long_context: What to do with a prompt longer than the model's context: ``refuse`` (outcome
            ``too_long``) or ``chunk`` (several prompts, a token is supported if it is in any).
        contrast: Where random documents come from: ``examples`` (the others given to :meth:`score_many`),
            ``pool`` (built-in neutral passages), or ``auto`` (examples if there are others, else the pool).
        seed: Seed of that draw.
        batch_size: At most so many sequences in one pass.
        evidence: Whether to record which passages the model looked at; needs attention.
        profile: A profile made by ``groundscope calibrate``, or its folder: the lines are its own.
        max_false_alarm: Draw the lines so that at most this share of faithful answers is flagged, by the held-out
            scores that the detector brings along.
        confidence: With which this is promised; 0.9 by default.

    Attributes:
        reader: What lays out examples and lets the model read them.
        profile: The profile that judges, if any.

    Raises:
        InputError: If a parameter is not understood.
        UnknownNameError: If there is no such detector, or it reads a signal that does not exist.
        PrerequisiteError: If the detector must learn first, or brings no held-out scores along to promise by.
        MismatchError: If it learnt from another model, tokenizer or template, or the profile is of another one.
    """

    def __init__(
        self,
        lm: LanguageModel,
        detector: str | Detector = DEFAULT_DETECTOR,
        *,
        threshold: float | None = None,
        span_threshold: float | None = None,
        template: PromptTemplate | None = None,
        long_context: LongContext = "refuse",
        contrast: ContrastSource = "auto",
        seed: int = 0,
        batch_size: int = 8,
        evidence: bool = True,
        profile: Profile | str | Path | None = None,
        max_false_alarm: float | None = None,
        confidence: float | None = None,
    ) -> None:
        if not isinstance(lm, LanguageModel):
            raise InputError(
                f"The 'lm' parameter of Scope must be a LanguageModel. Got {lm!r} instead; "
                "to load a model by name use Scope.from_pretrained."
            )
        _check_options(
            threshold=threshold,
            span_threshold=span_threshold,
            template=template,
            long_context=long_context,
            contrast=contrast,
            seed=seed,
            batch_size=batch_size,
            evidence=evidence,
            profile=profile,
            max_false_alarm=max_false_alarm,
        )
        self.lm = lm
        self.detector, self.profile = with_lines(_as_detector(detector), profile, max_false_alarm, confidence)
        self.template = template or PromptTemplate()
        self.long_context = long_context
        self.contrast = contrast
        self.seed = seed
        self.batch_size = batch_size
        self._given = (threshold, span_threshold)
        self._threshold: Threshold | None = None
        self.reader = Reader(
            lm,
            [self.detector],
            signals=["passage_attention"] if evidence and "attention" not in lm.anatomy.problems else [],
            template=self.template,
            long_context=long_context,
            contrast=contrast,
            seed=seed,
            batch_size=batch_size,
        )
        if isinstance(self.detector, LearnedDetector):
            self.detector.check_reader(self.reader.fingerprint)
        if self.profile is not None:
            self.profile.check_reader(self.reader.fingerprint)

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path = DEFAULT_MODEL,
        *,
        detector: str | Detector = DEFAULT_DETECTOR,
        dtype: str | torch.dtype | None = None,
        device: str | torch.device | None = None,
        **options: Any,
    ) -> Scope:
        """Load a model and join it with a detector.

        Args:
            model: See :meth:`groundscope.lm.language_model.LanguageModel.from_pretrained`.
            detector: A detector, or its name.
            dtype: Type of the weights.
            device: Where they go.
            **options: The constructor's other arguments.

        Raises:
            GroundscopeError: If the model cannot be loaded or a name is not known.
        """
        # Everything is checked first: a typing error should not cost a model load.
        check_source(model)
        resolved = _as_detector(detector)
        _check_options(**options)
        with_lines(resolved, *(options.get(name) for name in ("profile", "max_false_alarm", "confidence")))
        return cls(LanguageModel.from_pretrained(model, dtype=dtype, device=device), resolved, **options)

    @property
    def threshold(self) -> Threshold:
        """Where the lines are drawn; measured on first use if none was given."""
        if self._threshold is None:
            response, span = self._given
            if response is None and span is None:
                self._threshold = getattr(self.detector, "threshold_", None) or self._measured_threshold()
            else:
                neutral = self.detector.neutral
                if response is None:
                    response = span if neutral is None else neutral
                if span is None:
                    span = response if neutral is None else neutral
                own = getattr(self.detector, "threshold_", None)
                self._threshold = Threshold(
                    float(response or 0.0),
                    float(span or 0.0),
                    "the caller",
                    sentence=None if own is None else own.sentence,
                    sentence_probability=None if own is None else own.sentence_probability,
                )
        return self._threshold

    def _measured_threshold(self) -> Threshold:
        advice = "give Scope a threshold to do without"
        try:
            measured = reference_threshold(self.lm, self.detector, self.template)
        except GroundscopeError:
            raise
        except Exception as exc:  # whatever a foreign detector raises on the sample
            raise PrerequisiteError(
                f"The detector {self.detector.name!r} failed on the reference sample: {describe(exc)}; {advice}."
            ) from exc
        if not is_finite(measured.response) or not is_finite(measured.span):
            raise PrerequisiteError(
                f"The detector {self.detector.name!r} has no finite threshold on the reference sample. "
                f"Got {measured.response!r} and {measured.span!r}; {advice}."
            )
        return measured

    def score(
        self,
        question: str = "",
        passages: Sequence[str] | str = (),
        response: str = "",
        *,
        example: Example | None = None,
    ) -> Verdict:
        """Score one response.

        Args:
            question: The user's question; may be empty.
            passages: The retrieved passages.
            response: The answer to be checked.
            example: All of these in one; excludes the others.

        Returns:
            The verdict. What cannot be scored (empty response, no passages, too long) is an outcome in it.

        Raises:
            InputError: If an argument is no text.
            UnsupportedModelError: If the model cannot yield what the detector reads.
        """
        if example is not None and not isinstance(example, Example):
            raise InputError(
                f"The 'example' parameter of score must be an Example. Got {example!r} instead; "
                "Example.from_dict reads a record."
            )
        if example is None:
            texts = (passages,) if isinstance(passages, str) else passages
            example = Example(question=question, passages=texts, response=response)  # type: ignore[arg-type]
        elif question or passages or response:
            raise InputError("Give either an example or question, passages and response. Got both.")
        return self._score_block([example], ())[0]

    def score_many(
        self, examples: Iterable[Example | Mapping[str, Any]], *, others: Sequence[Example] | None = None
    ) -> Iterator[Verdict]:
        """Score a stream; verdicts come in order, and one example that fails harms no other.

        Args:
            examples: Examples, or records for :meth:`groundscope.example.Example.from_dict`.
            others: Where random documents are drawn from. By default all of ``examples`` if it is a
                sequence, else those up to 64 ahead in the stream; give it to make draws independent of
                where a stream is cut.

        Raises:
            InputError: If ``examples`` is a single example or no iterable, or ``others`` is no list of examples.
        """
        if isinstance(examples, (str, Mapping, Example)):
            raise InputError(
                f"The 'examples' parameter of score_many must be an iterable of examples or records. "
                f"Got one {type(examples).__name__} instead; put it in a list."
            )
        if not isinstance(examples, Iterable):
            raise InputError(
                "The 'examples' parameter of score_many must be an iterable of examples or records. "
                f"Got {examples!r} instead."
            )
        if others is not None:
            _check_others(others)
        if isinstance(examples, Sequence):
            items = [as_example(item) for item in examples]
            blocks: Iterable[list[Example | BadExample]] = [items] if items else []
        else:
            blocks = in_blocks(examples)
        for block in blocks:
            pool = others if others is not None else [item for item in block if isinstance(item, Example)]
            for start in range(0, len(block), self.batch_size):
                yield from self._score_block(block[start : start + self.batch_size], pool)

    def generate(
        self,
        question: str = "",
        passages: Sequence[str] | str = (),
        strategy: str = "greedy",
        *,
        on_text: Callable[[str], object] | None = None,
        on_draft: Callable[[Verdict], object] | None = None,
        **options: Any,
    ) -> Generation:
        """Let the model write an answer, under the detector's guidance if asked to, and check it.

        Args:
            question: The question; may be empty.
            passages: The passages; at least one.
            strategy: ``greedy``, ``sample``, ``guided``, ``aarf`` or ``best-of-n``.
            on_text: Is given the answer's pieces as soon as they are certain to stay.
            on_draft: Is given a verdict on what is written so far, whenever some words have come; only where the
                detector's signals can be had while the model writes.
            **options: See :class:`groundscope.mitigate.answering.options.Writing`.

        Returns:
            Text, verdict and the log of decisions. The same seed gives the same text.

        Raises:
            InputError: If an argument is not usable, or the detector reads what cannot be had while it guides.
            ContextTooLongError: If passages and budget do not fit the model.
        """
        generation: Generation = open_door("Scope.generate")(
            self.reader, self.detector, lambda: self.threshold, question, passages, strategy, on_text, on_draft, options
        )
        return generation

    def _score_block(self, items: Sequence[Example | BadExample], others: Sequence[Example]) -> list[Verdict]:
        assembler = Assembler(self.detector, self.lm.name)
        examples = [item for item in items if isinstance(item, Example)]
        results = iter(self.reader.read(examples, others))
        verdicts = []
        for item in items:
            if isinstance(item, BadExample):
                verdicts.append(assembler.unscored(Example("", (), "", id=item.id), "failed", item.reason))
                continue
            result = next(results)
            if isinstance(result, Unread):
                verdicts.append(assembler.unscored(item, result.outcome, result.message))
            else:
                verdicts.append(assembler.verdict(item, result, lambda: self.threshold))
        return verdicts


def _as_detector(detector: object) -> Detector:
    resolved = check_detector("Scope", resolve_detector(detector) if isinstance(detector, str) else detector)
    if isinstance(resolved, LearnedDetector):
        resolved.check_fitted()
    return resolved


def _check_options(**options: Any) -> None:
    """Refuse options that :class:`Scope` would not take, without a model."""
    known = set(inspect.signature(Scope).parameters) - {"lm", "detector"}
    for name in options:
        if name not in known:
            raise UnknownNameError("parameter of Scope", name, known)
    for name in ("threshold", "span_threshold"):
        value = options.get(name)
        if value is not None and not is_finite(value):
            raise InputError(f"The {name!r} parameter of Scope must be a finite number. Got {value!r} instead.")
    lines = [name for name in ("threshold", "span_threshold") if options.get(name) is not None]
    promises = [name for name in ("profile", "max_false_alarm") if options.get(name) is not None]
    if lines and promises:
        raise InputError(
            f"A threshold of one's own keeps no promise. Give either {lines[0]!r} or {promises[0]!r}, not both."
        )
    template = options.get("template")
    if template is not None and not isinstance(template, PromptTemplate):
        raise InputError(
            f"The 'template' parameter of Scope must be a PromptTemplate. Got {template!r} instead; "
            "PromptTemplate.from_file reads one."
        )
    check_choice("Scope", "long_context", options.get("long_context", "refuse"), get_args(LongContext))
    check_choice("Scope", "contrast", options.get("contrast", "auto"), get_args(ContrastSource))
    seed = options.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InputError(f"The 'seed' parameter of Scope must be an integer of at least 0. Got {seed!r} instead.")
    check_count("Scope", "batch_size", options.get("batch_size", 1))
    if not isinstance(options.get("evidence", True), bool):
        raise InputError(
            f"The 'evidence' parameter of Scope must be True or False. Got {options['evidence']!r} instead."
        )


def _check_others(others: Any) -> None:
    listed = isinstance(others, Sequence) and not isinstance(others, (str, bytes))
    wrong = [type(item).__name__ for item in others if not isinstance(item, Example)] if listed else []
    if not listed or wrong:
        raise InputError(
            "The 'others' parameter of score_many must be a list of Example. "
            f"Got {f'{wrong[0]} in it' if wrong else type(others).__name__} instead; Example.from_dict reads a record."
        )
