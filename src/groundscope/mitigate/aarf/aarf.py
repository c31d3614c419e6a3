"""AARF: while the model writes, copying heads are made louder and knowledge layers quieter where ReDeEP sees risk.

"Add Attention, Reduce FFN" of ReDeEP (arXiv 2410.11414). Where the score of a step is above ``tau``, the outputs of
the detector's heads are multiplied by ``alpha`` (before the output projection) and what the feed-forward blocks of its
layers add is multiplied by ``beta``, at that position only.

The released code differs: its score divides means by extremes of sums and a single token by extremes of means of
responses, and its prefill changes every position of the prompt. Here all extremes are those of what is divided, and
the prompt is read as it is, but for its last position where the first token's score asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from groundscope.detectors.learned.redeep import ReDeEPToken
from groundscope.errors import InputError, NonFiniteError, check_choice, is_finite
from groundscope.learn.balance import Balance, Side
from groundscope.lm.feed_forward import check_layers
from groundscope.mitigate.aarf.last_row import changed_last_row
from groundscope.mitigate.writing.generate import Steps, Token, generate
from groundscope.mitigate.writing.sampler import Draws, Sampler
from groundscope.mitigate.writing.session import Session
from groundscope.mitigate.writing.spelling import StopStrings
from groundscope.trace.online.online_trace import OnlineTrace

if TYPE_CHECKING:
    from groundscope.lm.language_model import LanguageModel

Cache = Literal["plain", "changed"]
SIGNALS = ("external_context_score", "parametric_knowledge_score")


@dataclass(frozen=True)
class Preset:
    """Constants of AARF.

    Attributes:
        alpha: Factor on the outputs of the heads, at least 0; 1 changes nothing.
        beta: Factor on what the feed-forward blocks add, at least 0; 1 changes nothing.
        tau: Steps whose score is above this are changed. Scores are about 0 to 1.
        source: Where the numbers come from.
    """

    alpha: float
    beta: float
    tau: float
    source: str = "the caller"

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            if not is_finite(value) or value < 0:
                raise InputError(
                    f"The {name!r} parameter of Preset must be a finite number of at least 0. Got {value!r} instead."
                )
        if not is_finite(self.tau):
            raise InputError(f"The 'tau' parameter of Preset must be a finite number. Got {self.tau!r} instead.")


_PAPER = "ReDeEP, arXiv 2410.11414, AARF"
PAPER = Preset(5.0, 0.2, 0.4, f"{_PAPER}: RAGTruth, Llama-2-7B and Llama-2-13B")
PAPER_LLAMA3 = Preset(5.0, 0.2, 0.0, f"{_PAPER}: RAGTruth, Llama-3-8B")
PAPER_DOLLY = Preset(2.0, 0.5, 0.6, f"{_PAPER}: Dolly (accurate context), all models")
CODE = Preset(1.2, 0.8, 0.6, "the released script of ReDeEP")
PRESETS = {"paper": PAPER, "paper-llama3": PAPER_LLAMA3, "paper-dolly": PAPER_DOLLY, "code": CODE}


@dataclass(frozen=True, eq=False)
class Parts:
    """Which heads and layers are read and changed, and how a step is scored; what a fitted detector brings along.

    Attributes:
        heads_: (layer, head) of the copying heads.
        layers_: The layers whose feed-forward blocks hold knowledge.
        balance_: What scores a step.
        extremes_: Smallest and largest score of the tokens learnt from; ``None`` if they are not known.
    """

    heads_: tuple[tuple[int, int], ...]
    layers_: tuple[int, ...]
    balance_: Balance
    extremes_: tuple[float, float] | None = None

    @classmethod
    def given(
        cls,
        lm: LanguageModel,
        heads: Sequence[tuple[int, int]],
        layers: Sequence[int],
        weight: float,
        context: Sequence[tuple[float, float]],
        knowledge: Sequence[tuple[float, float]],
    ) -> Parts:
        """Return parts that were chosen elsewhere.

        Args:
            lm: The model that they belong to.
            heads: (layer, head), 0-based.
            layers: 0-based.
            weight: Weight of the context in the score.
            context: Smallest and largest external context score of each head over tokens.
            knowledge: Smallest and largest parametric knowledge score of each layer over tokens.

        Raises:
            InputError: If the model has no such head or layer, or the numbers do not fit together.
        """
        if not is_finite(weight) or weight < 0:
            raise InputError(
                f"The 'weight' parameter of Parts must be a finite number of at least 0. Got {weight!r} instead."
            )
        places, count = lm.anatomy.attention_layers, lm.anatomy.heads
        _check_places(lm, heads, layers)
        columns = [places.index(layer) * count + head for layer, head in heads]
        sides = _side("context", columns, context), _side("knowledge", list(layers), knowledge)
        return cls(tuple(heads), tuple(layers), Balance(*sides, float(weight)))


@dataclass(frozen=True)
class Step:
    """What was decided before one token was chosen.

    Attributes:
        sequence: Which sequence.
        token: Number of the token that the step chooses.
        score: Its score: 0 for the lowest score among the tokens learnt from, 1 for the highest; it may lie outside.
        edited: Whether heads and layers were changed.
    """

    sequence: int
    token: int
    score: float
    edited: bool


class AARF(Iterator[Token]):
    """Tokens that are being written under AARF; made by :func:`aarf`. It may be left at any time.

    Attributes:
        steps: What was decided so far.
        preset: The constants.
    """

    def __init__(self, tokens: Iterator[Token], steps: list[Step], preset: Preset) -> None:
        self.preset = preset
        self.steps = steps
        self._tokens = tokens

    def __next__(self) -> Token:
        return next(self._tokens)

    def close(self) -> None:
        """Write no more; what was written stays."""
        self._tokens = iter(())


def aarf(
    session: Session,
    detector: ReDeEPToken | Parts,
    preset: Preset = PAPER,
    sampler: Sampler | None = None,
    max_new_tokens: int = 256,
    *,
    passes: Literal[1, 2] = 2,
    cache: Cache | None = None,
    extremes: tuple[float, float] | None = None,
    stop: Sequence[str] | StopStrings = (),
    draws: Draws | None = None,
) -> AARF:
    """Write on as :func:`groundscope.mitigate.writing.generate.generate` does, with AARF.

    With two passes, a step whose score is above ``tau`` is repeated with heads and layers changed, and its token is
    chosen from the repeated pass. With one pass, the position of a token is read changed where the *previous* step's
    score was above ``tau``; it costs no second pass, and the first token is never changed.

    Args:
        session: What to write on; its signals must include those of ReDeEP.
        detector: A fitted detector, or parts chosen elsewhere.
        preset: The constants.
        sampler: How tokens are chosen; by default the likeliest.
        max_new_tokens: At most so many tokens per sequence.
        passes: 2, or 1.
        cache: Which keys and values later tokens read: those of the ``plain`` pass (as released; scores and the
            session's signals are then those of the unchanged model reading the text) or of the ``changed`` one. By
            default plain with two passes; with one pass there is only ``changed``.
        extremes: The detector's score that counts as 0 and as 1. By default the smallest and the largest token score
            of the examples that it learnt from; where these are not known, what the balance gives to heads and layers
            that are all at the extremes learnt from: minus its beta, and 1.
        stop: Strings that end an answer.
        draws: Where the random numbers come from, to go on with those of an earlier call.

    Raises:
        InputError: At once, if an argument is not usable, or the session does not compute what is needed.
        PrerequisiteError: If the detector must learn first.
        UnsupportedModelError: If the model's heads or feed-forward blocks cannot be changed.
        ContextTooLongError: If the budget does not fit the model.
        NonFiniteError: While writing, if the model produces NaN or infinity, by itself or changed.
    """
    if not isinstance(detector, (ReDeEPToken, Parts)):
        raise InputError(
            "The 'detector' parameter of aarf must be a fitted ReDeEPToken, or Parts. "
            f"Got a {type(detector).__name__} instead."
        )
    if isinstance(detector, ReDeEPToken):
        detector.check_fitted()
        detector = Parts(detector.heads_, detector.layers_, detector.balance_, detector.extremes_)
    if not isinstance(preset, Preset):
        raise InputError(f"The 'preset' parameter of aarf must be a Preset. Got {preset!r} instead.")
    check_choice("aarf", "passes", passes, (1, 2))
    check_choice("aarf", "cache", cache, (None, "plain", "changed"))
    check_passes(passes, cache)
    missing = [name for name in SIGNALS if name not in session.signals]
    if missing:
        raise InputError(
            f"AARF reads {missing[0]!r}, which this session does not compute. "
            f"Make it with Session(lm, prompt, {list(SIGNALS)!r})."
        )
    _check_places(session.lm, detector.heads_, detector.layers_)
    if extremes is None:
        extremes = detector.extremes_ or (-detector.balance_.beta, 1.0)
    low, high = extremes
    if not is_finite(low) or not is_finite(high) or low >= high:
        raise InputError(
            f"The 'extremes' parameter of aarf must be two finite numbers, the lower first. Got {extremes!r} instead."
        )
    steps: list[Step] = []
    if passes == 2:
        taken: Steps = _Twice(detector, preset, (low, high), steps, cache == "changed")
    else:
        taken = _Once(detector, preset, (low, high), steps)
    return AARF(generate(session, sampler, max_new_tokens, stop=stop, draws=draws, steps=taken), steps, preset)


def check_passes(passes: int, cache: str | None) -> None:
    """Refuse to keep what is never computed.

    Raises:
        InputError: If a single pass is to leave plain keys and values.
    """
    if passes == 1 and cache == "plain":
        raise InputError(
            "passes=1 with cache='plain' is not possible: what is read once is kept as it was read. Use passes=2."
        )


class _Scored:
    """Scores the steps, and changes the model where it must."""

    def __init__(self, parts: Parts, preset: Preset, extremes: tuple[float, float], steps: list[Step]) -> None:
        self._parts = parts
        self._preset = preset
        self._low, self._high = extremes
        self._steps = steps

    def _scores(self, session: Session) -> list[float]:
        external, knowledge = (session.ahead[name].flatten(1).double().cpu().numpy() for name in SIGNALS)
        balance = self._parts.balance_
        scores = (balance(external, knowledge) - self._low) / (self._high - self._low)
        if not np.isfinite(scores).all():
            raise NonFiniteError(
                f"{session.lm.name} produced NaN or infinity, so no step can be scored. Check the weights; if they "
                "are float16, load the model with dtype='bfloat16' or 'float32'."
            )
        return [float(score) for score in scores]

    def _over(self, session: Session, scores: Sequence[float]) -> list[bool]:
        return [score > self._preset.tau and session.ended(i) is None for i, score in enumerate(scores)]

    def _log(self, session: Session, scores: Sequence[float], edited: Sequence[bool]) -> None:
        self._steps.extend(
            Step(i, session.tokens, scores[i], edited[i]) for i in range(session.size) if session.ended(i) is None
        )

    def _changing(self, lm: LanguageModel, over: Sequence[bool]) -> AbstractContextManager[None]:
        return changed_last_row(
            lm, self._parts.heads_, self._parts.layers_, self._preset.alpha, self._preset.beta, over
        )

    def _check_changed(self, lm: LanguageModel, logits: Tensor) -> None:
        # The plain pass before gave finite scores: what broke the model is the change.
        if not bool(torch.isfinite(logits.amax(-1)).all()):
            raise NonFiniteError(
                f"{lm.name} produced NaN or infinity with its heads multiplied by alpha = {self._preset.alpha:g} and "
                f"its feed-forward blocks by beta = {self._preset.beta:g}; unchanged it did not. "
                "Give factors nearer to 1."
            )


class _Twice(_Scored):
    """A step over the line is repeated, changed."""

    def __init__(
        self, parts: Parts, preset: Preset, extremes: tuple[float, float], steps: list[Step], keep: bool
    ) -> None:
        super().__init__(parts, preset, extremes, steps)
        self._keep = keep
        self._before: tuple[OnlineTrace, Tensor] | None = None

    def logits(self, session: Session) -> Tensor:
        scores = self._scores(session)
        over = self._over(session, scores)
        self._log(session, scores, over)
        if not any(over):
            return session.logits
        again = self._again(session, over)
        logits = again.logits
        self._check_changed(session.lm, logits)
        if self._keep:
            session.online = again
        return logits

    def feed(self, session: Session, ids: Tensor) -> None:
        # A fork shares keys and values, and is a way back for every kind of cache.
        self._before = session.online.fork(), ids
        session.feed(ids)

    def _again(self, session: Session, over: Sequence[bool]) -> OnlineTrace:
        online = session.online
        before, self._before = self._before, None
        if before is None and session.tokens:
            other = online.fork()
            other.roll_back(1)
            before = other, torch.tensor([[online.ids(i)[-1]] for i in range(online.size)])
        with self._changing(session.lm, over):
            if before is None:
                prompts = [online.prompt(i) for i in range(online.size)]
                return OnlineTrace(session.lm, prompts, session.signals if self._keep else ())
            before[0].feed(before[1])
        return before[0]


class _Once(_Scored):
    """Where the last step was over the line, the next position is read changed."""

    def __init__(self, parts: Parts, preset: Preset, extremes: tuple[float, float], steps: list[Step]) -> None:
        super().__init__(parts, preset, extremes, steps)
        self._last: list[float] = []
        self._edited: list[bool] = []

    def logits(self, session: Session) -> Tensor:
        self._last = self._scores(session)
        self._log(session, self._last, self._edited or [False] * session.size)
        return session.logits

    def feed(self, session: Session, ids: Tensor) -> None:
        self._edited = self._over(session, self._last)
        if not any(self._edited):
            session.feed(ids)
            return
        with self._changing(session.lm, self._edited):
            session.feed(ids)
        self._check_changed(session.lm, session.logits)


def _check_places(lm: LanguageModel, heads: Sequence[tuple[int, int]], layers: Sequence[int]) -> None:
    lm.anatomy.require("attention", lm.name)
    known = set(lm.anatomy.attention_layers)
    if not heads or not layers:
        raise InputError("AARF needs at least one head and one layer. Got none.")
    for layer, head in heads:
        if layer not in known or not 0 <= head < lm.anatomy.heads:
            raise InputError(
                f"{lm.name} has heads 0 to {lm.anatomy.heads - 1} in the layers {sorted(known)}. "
                f"Got layer {layer}, head {head}; use what was fitted on this model."
            )
    check_layers(lm, layers)


def _side(name: str, columns: list[int], ranges: Sequence[tuple[float, float]]) -> Side:
    values = np.asarray(ranges, dtype=np.float64)
    if values.shape != (len(columns), 2) or not np.isfinite(values).all() or (values[:, 0] >= values[:, 1]).any():
        raise InputError(
            f"The {name!r} parameter of Parts must hold {len(columns)} pairs of finite numbers, the lower first. "
            f"Got {ranges!r} instead."
        )
    weights = np.full(len(columns), 1 / len(columns))
    return Side(np.asarray(columns, dtype=np.int64), weights, values[:, 0], values[:, 1] - values[:, 0])
