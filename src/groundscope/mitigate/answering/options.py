"""How an answer is written: a strategy and its options, checked before anything is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from groundscope.errors import InputError, UnknownNameError, check_choice, check_count
from groundscope.mitigate.aarf.aarf import PRESETS, Cache, Preset, check_passes
from groundscope.mitigate.answering.abstain import AbstainMode
from groundscope.mitigate.writing.guided import BUDGET, Variant
from groundscope.mitigate.writing.sampler import Sampler
from groundscope.mitigate.writing.spelling import StopStrings

_DRAWING = ("temperature", "top_p", "top_k")
_WHOLE = ("max_new_tokens", "candidates", "chunk", "n", "top_k", "seed")
_REAL = ("temperature", "top_p", "alpha", "beta", "tau")
# Per strategy, the options that others do not know.
STRATEGIES: dict[str, tuple[str, ...]] = {
    "greedy": (),
    "sample": _DRAWING,
    "guided": (*_DRAWING, "candidates", "chunk", "variant"),
    "aarf": (*_DRAWING, "preset", "alpha", "beta", "tau", "passes", "cache"),
    "best-of-n": (*_DRAWING, "n"),
}


@dataclass(frozen=True)
class Writing:
    """How an answer is written.

    Attributes:
        strategy: ``greedy``, ``sample``, ``guided`` (:func:`groundscope.mitigate.writing.guided.guided`), ``aarf``
            (:func:`groundscope.mitigate.aarf.aarf.aarf`) or ``best-of-n``
            (:func:`groundscope.mitigate.writing.best_of_n.best_of_n`).
        max_new_tokens: At most so many tokens.
        stop: Strings that end the answer.
        seed: Of the draws.
        temperature: See :class:`groundscope.mitigate.writing.sampler.Sampler`; by default 0.9, for the official
            variant 1. For ``aarf`` tokens are drawn only if one of these three is given.
        top_p: Likewise; by default 0.95, for the official variant 1.
        top_k: Likewise; by default 0.
        candidates: For ``guided``: continuations per chunk, by default 8.
        chunk: For ``guided``: tokens in a chunk, by default 8.
        variant: For ``guided``: ``paper`` (default) or ``official``.
        preset: For ``aarf``: name of the constants (:data:`groundscope.mitigate.aarf.aarf.PRESETS`); by default
            ``paper``.
        alpha: For ``aarf``: in place of the preset's.
        beta: Likewise.
        tau: Likewise.
        passes: For ``aarf``: 2 (default) or 1.
        cache: For ``aarf``: ``plain`` or ``changed``.
        n: For ``best-of-n``: how many answers, by default 8.
        abstain: What to do with an answer above the threshold: ``refuse``, ``remove``, or nothing.

    Raises:
        InputError: If an option is not usable, or has no effect on the strategy.
        UnknownNameError: If there is no such strategy.
    """

    strategy: str = "greedy"
    max_new_tokens: int = BUDGET
    stop: Sequence[str] = ()
    seed: int = 0
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    candidates: int | None = None
    chunk: int | None = None
    variant: Variant | None = None
    preset: str | None = None
    alpha: float | None = None
    beta: float | None = None
    tau: float | None = None
    passes: Literal[1, 2] | None = None
    cache: Cache | None = None
    n: int | None = None
    abstain: AbstainMode | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.strategy, str) or self.strategy not in STRATEGIES:
            raise UnknownNameError("strategy", self.strategy, STRATEGIES)
        for name in sorted({name for known in STRATEGIES.values() for name in known}):
            if getattr(self, name) is not None and name not in STRATEGIES[self.strategy]:
                users = ", ".join(repr(key) for key, known in STRATEGIES.items() if name in known)
                raise InputError(
                    f"The {name!r} parameter of generate has no effect with strategy={self.strategy!r}. "
                    f"Got {getattr(self, name)!r}; leave it out, or choose {users}."
                )
        check_count("generate", "max_new_tokens", self.max_new_tokens)
        for name in ("candidates", "chunk", "n"):
            if getattr(self, name) is not None:
                check_count("generate", name, getattr(self, name))
        StopStrings(self.stop)
        self._check_aarf()
        check_choice("generate", "abstain", self.abstain, (None, *get_args(AbstainMode)))
        if self.temperature == 0:
            raise InputError(
                "The 'temperature' parameter of generate must be above 0 where tokens are drawn. Got 0 instead; "
                "strategy='greedy' takes the likeliest token."
            )
        self._check_official()
        self.sampler  # noqa: B018  checks its own numbers
        # Plain numbers, which a decision log can be written with.
        for kind, names in ((int, _WHOLE), (float, _REAL)):
            for name in names:
                if getattr(self, name) is not None:
                    object.__setattr__(self, name, kind(getattr(self, name)))

    def _check_official(self) -> None:
        for name, value in (("temperature", 1), ("top_p", 1), ("top_k", 0)):
            given = getattr(self, name)
            if self.variant == "official" and given is not None and given != value:
                raise InputError(
                    f"variant='official' draws as released, with {name}={value}. Got {given!r} instead; leave "
                    f"{name!r} out, or choose variant='paper'."
                )

    def _check_aarf(self) -> None:
        if self.preset is not None and (not isinstance(self.preset, str) or self.preset not in PRESETS):
            raise UnknownNameError("preset of AARF", self.preset, PRESETS)
        alpha, beta, tau = (1.0 if value is None else value for value in (self.alpha, self.beta, self.tau))
        Preset(alpha, beta, tau)
        check_choice("generate", "passes", self.passes, (None, 1, 2))
        check_choice("generate", "cache", self.cache, (None, *get_args(Cache)))
        check_passes(self.passes or 2, self.cache)

    @classmethod
    def of(cls, strategy: str, options: dict[str, Any]) -> Writing:
        """Return the options, refusing unknown ones by name."""
        known = [item.name for item in fields(cls) if item.name != "strategy"]
        for name in options:
            if name not in known:
                raise UnknownNameError("parameter of generate", name, known)
        return cls(strategy, **options)

    @property
    def sampler(self) -> Sampler:
        """How tokens are chosen."""
        drawn = any(getattr(self, name) is not None for name in _DRAWING)
        if self.strategy == "greedy" or (self.strategy == "aarf" and not drawn):
            return Sampler(seed=self.seed)
        base = Sampler(1.0) if self.variant == "official" else Sampler(0.9, 0.95)
        given = {name: getattr(self, name) for name in _DRAWING if getattr(self, name) is not None}
        return replace(base, seed=self.seed, **given)
