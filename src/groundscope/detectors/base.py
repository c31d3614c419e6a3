"""What every detector is: signals in, one score per response token out."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from groundscope.errors import InputError, check_count

if TYPE_CHECKING:
    from groundscope.detectors.judgement import Judgement, SentenceJudgement
    from groundscope.example import Example
    from groundscope.lm.language_model import LanguageModel
    from groundscope.lm.prompt.layout import Layout
    from groundscope.text.chunks import ChunkConfig
    from groundscope.trace.trace import FloatArray, Trace

Scores = npt.NDArray[np.float64]


class Detector(ABC):
    """A rule or a probe that turns a trace into token scores; higher means more likely hallucinated.

    As in scikit-learn, the constructor only stores its arguments, and what is learnt ends in ``_``.

    Attributes:
        name: Name in the registry.
        summary: One line for people.
        reference: Paper and equation.
        needs_training: Whether it must be fitted before it scores.
        aggregation: How token scores become the response score, in words.
        window: Tokens over which span scores are averaged before spans are cut out of them.
        level: ``token``, or ``response`` where all tokens of a response get the same score.
        costs_more: Whether it needs more than the planned passes: samples, questions or another model.
        documents: Random documents it compares with, where it compares at all.
        match_length: Whether these are to be about as long as the passages.
        neutral: Token and span score that speaks neither for nor against support; ``None`` if there is none.
        profile_: Name of the calibration profile behind its thresholds and probabilities; empty if there is none.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    reference: ClassVar[str]
    needs_training: ClassVar[bool] = False
    aggregation: ClassVar[str] = "mean over tokens"
    window: ClassVar[int] = 16
    neutral: ClassVar[float | None] = None
    level: ClassVar[Literal["token", "response"]] = "token"
    costs_more: ClassVar[bool] = False
    documents: int = 1
    match_length: bool = False
    profile_: str = ""

    @property
    @abstractmethod
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that it reads."""

    @property
    def chunking(self) -> ChunkConfig | None:
        """How passages and response are cut into chunks for it; ``None`` if it reads no chunks."""
        return None

    @property
    def own_signals(self) -> tuple[str, ...]:
        """Names of the (token, ...) arrays that :meth:`gather` adds to a trace; for what no other detector reads."""
        return ()

    def gather(self, lm: LanguageModel, example: Example, layout: Layout) -> Mapping[str, FloatArray]:
        """Return :attr:`own_signals` of one example: what asking, sampling or another model tells.

        Args:
            lm: The model that reads.
            example: The texts.
            layout: As it was laid out for the other signals.
        """
        return {}

    @abstractmethod
    def token_scores(self, trace: Trace) -> Scores:
        """Score every response token.

        Args:
            trace: Holds at least :attr:`signals`.

        Returns:
            (token,) finite scores, higher = more likely hallucinated.
        """

    def span_scores(self, trace: Trace) -> Scores:
        """Score every response token for the cutting of spans; by default its token score.

        A detector may use another unit here, if that locates better.
        """
        return self.token_scores(trace)

    def response_score(self, scores: Scores) -> float:
        """Return the score of a response from its (token,) scores; NaN entries do not count."""
        return float(np.nanmean(scores))

    def judge(self, trace: Trace) -> Judgement | None:
        """Judge the sentences of a response and the response by them.

        Where a detector does, its verdicts take sentences, response score and probabilities from here and flag
        sentences by ``threshold.sentence``; tokens and spans still come from :meth:`token_scores` and
        :meth:`span_scores`.

        Returns:
            The judgement; ``None``, for every trace, if the detector has no sentence model.
        """
        return None

    def response_from_sentences(self, sentences: Sequence[SentenceJudgement]) -> tuple[float, float]:
        """Return score and probability of a response that was read in several prompts, from its sentences.

        A sentence is given as in the prompt that supports it best. By default the least supported sentence
        stands for the response; a detector whose :meth:`judge` joins sentences otherwise does the same here.

        Args:
            sentences: At least one.
        """
        worst = max(sentences, key=lambda item: item.score)
        return worst.score, worst.probability

    @property
    def uses_contrast(self) -> bool:
        """Whether it compares with a random document."""
        from groundscope.trace.signals import sources_of

        return "contrast" in sources_of(self.signals)

    @classmethod
    def parameters(cls) -> list[str]:
        """Return the names of the constructor's arguments."""
        # Of the class: object.__init__, which detectors without parameters inherit, claims to take *args.
        return list(inspect.signature(cls).parameters)

    def get_params(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {name: getattr(self, name) for name in self.parameters()}

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({arguments})"


def check_detector(owner: str, given: object) -> Detector:
    """Return a detector, refusing what is not usable as one before anything is read with it.

    Raises:
        InputError: If it is not an instance of :class:`Detector`, or a field of it has the wrong type.
        UnknownNameError: If it reads a signal that does not exist.
    """
    from groundscope.trace.signals import check_signals

    wanted = f"The 'detector' parameter of {owner} must be a Detector or the name of one."
    if isinstance(given, type):
        raise InputError(f"{wanted} Got the class {given.__name__} instead; make one of it: {given.__name__}().")
    if not isinstance(given, Detector):
        raise InputError(f"{wanted} Got {given!r} instead.")
    if not isinstance(getattr(given, "name", None), str) or not isinstance(given.aggregation, str):
        raise InputError(f"{wanted} Got a {type(given).__name__} whose 'name' or 'aggregation' is no string.")
    if not isinstance(given.profile_, str):
        raise InputError(f"{wanted} Got a {type(given).__name__} whose 'profile_' is no string.")
    check_count(type(given).__name__, "window", given.window)
    try:
        signals, own = given.signals, given.own_signals
    except Exception as exc:  # whatever a foreign detector raises
        raise InputError(f"The detector {given.name!r} cannot say which signals it reads: {describe(exc)}.") from exc
    if signals != () or not own:
        check_signals(signals)
    return given


def describe(exc: BaseException) -> str:
    """Return an error's kind and words, for a message about foreign code."""
    return f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__


def check_share(owner: str, name: str, value: object) -> None:
    """Refuse a parameter that must be a number in [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise InputError(
            f"The {name!r} parameter of {owner} must be a float in the range [0, 1]. Got {value!r} instead."
        )
