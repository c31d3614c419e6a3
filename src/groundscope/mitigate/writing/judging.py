"""A detector as a judge of what is being written: what it must have, and what it says of a stretch of tokens."""

from __future__ import annotations

import numpy as np

from groundscope.detectors.base import Detector, check_detector, describe
from groundscope.detectors.learnable import LearnedDetector
from groundscope.detectors.learned.windowed import WindowedProbe
from groundscope.errors import GroundscopeError, InputError, is_finite
from groundscope.mitigate.writing.session import Session
from groundscope.trace.online.online_trace import known_when
from groundscope.trace.trace import Trace


def online_signals(detector: Detector) -> tuple[str, ...]:
    """Return the signals that a detector reads, all of which can be had while a text is written.

    Raises:
        InputError: If one cannot; the message names it.
    """
    for name in detector.own_signals:
        raise InputError(
            f"The detector {detector.name!r} reads {name!r}, which cannot be had while the text is written: it is "
            "gathered about the finished text. Choose another detector, or the strategy 'best-of-n'."
        )
    for name in detector.signals:
        try:
            known_when(name)
        except InputError as exc:
            raise InputError(f"The detector {detector.name!r} cannot guide: {exc}") from exc
    return detector.signals


def is_online(detector: Detector) -> bool:
    """Whether all that a detector reads can be had while a text is written."""
    try:
        online_signals(detector)
    except InputError:
        return False
    return True


def check_guide(owner: str, detector: object, session: Session) -> Detector:
    """Refuse a detector that cannot score what a session writes, before anything is written.

    Raises:
        InputError: If it is no detector, reads what cannot be had online, or the session lacks one of its signals.
        PrerequisiteError: If it must learn first.
    """
    found = check_detector(owner, detector)
    if isinstance(found, LearnedDetector):
        found.check_fitted()
    missing = [name for name in online_signals(found) if name not in session.signals]
    if missing:
        raise InputError(
            f"The detector {found.name!r} reads {missing[0]!r}, which this session does not compute. "
            f"Make it with Session(lm, prompt, {list(found.signals)!r})."
        )
    return found


def stretch_score(detector: Detector, trace: Trace, first: int, last: int) -> float:
    """Return the score of the tokens ``first`` to ``last`` (exclusive) of a trace.

    The detector sees the whole trace, so tokens before the stretch are there as context. For probes on units of
    tokens (Lookback Lens, AggTruth, hidden states) it is the probability at the stretch's mean features, as Lookback
    Lens defines it; for all others the mean of its token scores.

    Raises:
        InputError: If the detector raises, or returns what is no score.
    """
    try:
        if isinstance(detector, WindowedProbe):
            score = float(detector.window_scores(trace, np.array([[first, last]]))[0])
        else:
            tokens = np.asarray(detector.token_scores(trace), dtype=np.float64)
            if tokens.shape != (trace.tokens,):
                raise InputError(f"it must return ({trace.tokens},) numbers, got shape {tokens.shape}")
            score = float(tokens[first:last].mean())
    except InputError as exc:
        raise InputError(f"The detector {detector.name!r} cannot score what is written: {exc}") from exc
    except GroundscopeError:
        raise
    except Exception as exc:  # whatever a foreign detector raises
        raise InputError(f"The detector {detector.name!r} failed in token_scores: {describe(exc)}.") from exc
    if not is_finite(score):
        raise InputError(f"The detector {detector.name!r} must return finite scores. Got {score!r} instead.")
    return score
