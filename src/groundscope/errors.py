"""The errors that groundscope raises.

Every message says what was given, what was expected and what to do. All derive from
:class:`GroundscopeError`, so ``except GroundscopeError`` catches whatever this package refuses.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from numbers import Integral, Real


class GroundscopeError(Exception):
    """Base of all errors raised on purpose by groundscope."""


class InputError(GroundscopeError, ValueError):
    """An argument, record or file is not what was expected."""


class LayoutError(InputError):
    """Prompt and response cannot be laid out as tokens (template, segments or offsets)."""


class ContextTooLongError(LayoutError):
    """Prompt and response do not fit the model's context window.

    Attributes:
        prompt_tokens: Tokens in the prompt.
        response_tokens: Tokens in the response.
        limit: Tokens that the model can read.
    """

    def __init__(self, prompt_tokens: int, response_tokens: int, limit: int, advice: str = "") -> None:
        self._advice = advice
        self.prompt_tokens = prompt_tokens
        self.response_tokens = response_tokens
        self.limit = limit
        advice = advice or (
            "Shorten the passages, choose a model with a longer context, or score a finished response in parts "
            "(long_context='chunk', --long-context chunk)."
        )
        super().__init__(
            f"The prompt has {prompt_tokens} tokens and the response {response_tokens}, together "
            f"{prompt_tokens + response_tokens}; the model reads at most {limit}. {advice}"
        )

    def __reduce__(self) -> tuple[type[ContextTooLongError], tuple[int, int, int, str]]:
        return type(self), (self.prompt_tokens, self.response_tokens, self.limit, self._advice)


class UnknownNameError(InputError):
    """A name (detector, signal, model, template, field) is not known."""

    def __init__(self, kind: str, given: object, known: Iterable[str], advice: str = "") -> None:
        names = sorted(known)
        by_lower = {name.lower(): name for name in names}
        close = difflib.get_close_matches(str(given).lower(), by_lower, n=1, cutoff=0.5)
        hint = f" Did you mean {by_lower[close[0]]!r}?" if close else ""
        super().__init__(f"Unknown {kind} {given!r}.{hint} Known: {', '.join(names)}.{' ' + advice if advice else ''}")


class UnsupportedModelError(GroundscopeError):
    """The model cannot yield what was asked for (its architecture, not its weights, is the reason)."""


class MismatchError(GroundscopeError):
    """A trained detector meets another model, tokenizer or template than it learnt from."""


class NonFiniteError(GroundscopeError):
    """The model produced NaN or infinity where a finite number is needed."""


class PrerequisiteError(GroundscopeError):
    """Something outside the code is missing: a package, a file, the network, disk space or a device."""


class ModelFetchError(PrerequisiteError):
    """The embedded model could not be fetched, checked, converted or stored."""


def check_choice(owner: str, name: str, given: object, allowed: Iterable[object]) -> None:
    """Refuse a parameter value outside a fixed set, in scikit-learn's error grammar."""
    choices = list(allowed)
    if given not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise InputError(f"The {name!r} parameter of {owner} must be one of {listed}. Got {given!r} instead.")


def check_count(owner: str, name: str, given: object) -> None:
    """Refuse a parameter that must be a whole number of at least 1."""
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise InputError(f"The {name!r} parameter of {owner} must be an integer of at least 1. Got {given!r} instead.")
    if given < 1:
        raise InputError(f"The {name!r} parameter of {owner} must be at least 1. Got {given!r} instead.")


def is_index(value: object, size: int) -> bool:
    """Whether a value is a whole number from 0 to below a size."""
    return not isinstance(value, bool) and isinstance(value, Integral) and 0 <= int(value) < size


def is_finite(value: object) -> bool:
    """Whether a value is a finite real number; ``True`` and ``False`` are none."""
    if type(value) is float:  # nearly all are; the abstract class is slow to ask
        return math.isfinite(value)
    try:
        return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False


def is_share(value: object) -> bool:
    """Whether a value is a real number in [0, 1]."""
    return is_finite(value) and 0 <= value <= 1  # type: ignore[operator]
