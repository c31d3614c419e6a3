"""LUMINA: internal knowledge against external context, without training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from groundscope.detectors.base import Scores, check_share
from groundscope.detectors.learnable import Arrays, LearnedDetector
from groundscope.errors import InputError, PrerequisiteError, check_choice, check_count
from groundscope.learn.calibration import CALIBRATIONS, Calibration, CalibrationName
from groundscope.trace.signals.forms import Kernel, MmdForm, check_form
from groundscope.trace.trace import Trace
from groundscope.trace.traced import Traced, TracedExample

if TYPE_CHECKING:
    from typing_extensions import Self

_RATE = "information_processing_rate_calibrated"


class Lumina(LearnedDetector):
    """weight * internal - (1 - weight) * external score of each token.

    Internal is the calibrated information processing rate, in [0, ln V] for a vocabulary of V; external is the
    squared MMD between the output distributions under the passages and under a random document, in [0, 2]. As
    published (``calibration="none"``) the two are mixed as they are: the scales differ, so 0.5 is no balance, and
    the same weight means another balance for another model. ``zscore`` and ``rank`` put both on one scale, by where
    they lie among those of unlabelled text: see :meth:`calibrate`.

    Args:
        weight: The paper's lambda, in [0, 1].
        kernel: Kernel of the MMD: ``cosine``, or ``rbf``, which needs ``top_k``.
        sigma: Width of the rbf kernel, in units of the model's input embeddings.
        top_k: Tokens of each output distribution that are compared; ``None`` for the whole vocabulary, which the
            cosine kernel's closed form allows. The authors' code compares the 100 likeliest of each.
        documents: Random documents over which the external score is averaged.
        match_length: Whether to draw these among contexts of about the same length.
        calibration: ``none``, ``zscore`` or ``rank``.

    Raises:
        InputError: If a parameter is not understood.

    Attributes:
        internal_: Calibration of the internal score; absent before :meth:`calibrate` and under ``none``.
        external_: Calibration of the external score.
    """

    name = "lumina"
    summary = "information processing rate against distribution shift under a random document"
    reference = "LUMINA, arXiv 2509.21875, eq. 4-11"
    needs_training: ClassVar[bool] = False
    internal_: Calibration
    external_: Calibration

    def __init__(
        self,
        weight: float = 0.5,
        kernel: Kernel = "cosine",
        sigma: float = 1.0,
        top_k: int | None = None,
        documents: int = 1,
        match_length: bool = False,
        calibration: CalibrationName = "none",
    ) -> None:
        check_share("Lumina", "weight", weight)
        check_form("Lumina", kernel, top_k, sigma)
        check_count("Lumina", "documents", documents)
        check_choice("Lumina", "match_length", match_length, (True, False))
        check_choice("Lumina", "calibration", calibration, ("none", *CALIBRATIONS))
        self.weight = weight
        self.kernel = kernel
        self.sigma = sigma
        self.top_k = top_k
        self.documents = documents
        self.match_length = match_length
        self.calibration = calibration

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that it reads."""
        return (_RATE, MmdForm(self.kernel, self.top_k, self.sigma).name)

    def external_internal(self, trace: Trace) -> tuple[Scores, Scores]:
        """Return (token,) external and (token,) internal scores, not calibrated: the axes of the paper's densities."""
        rate, shift = self.signals
        return trace[shift].astype(np.float64), trace[rate].astype(np.float64)

    def token_scores(self, trace: Trace) -> Scores:
        """Score every response token.

        Raises:
            PrerequisiteError: If the calibration has not seen any text yet.
        """
        external, internal = self.external_internal(trace)
        if self.calibration != "none":
            self.check_fitted()
            external, internal = self.external_.transform(external), self.internal_.transform(internal)
        return self.weight * internal - (1 - self.weight) * external

    def calibrate(self, traces: Iterable[Trace]) -> Self:
        """Learn the two scales from the tokens of some text; labels are not read.

        Args:
            traces: Of one model, with :attr:`signals`; a few dozen answers like those to be scored.

        Returns:
            Itself.

        Raises:
            InputError: If there are no traces, they are of several models, or their scores do not vary.
        """
        items = list(traces)
        for item in items:
            if not isinstance(item, Trace):
                raise InputError(f"calibrate takes traces. Got {type(item).__name__} instead; fit takes examples.")
        if not items:
            raise InputError("The calibration of 'lumina' needs traces to learn its scales from. Got none.")
        first = items[0]
        for item in items:
            if item.fingerprint != first.fingerprint:
                raise InputError(
                    f"All traces must be of one model and template. Got some of {first.model!r} and some of "
                    f"{item.model!r}, or of another template."
                )
        if self.calibration != "none":
            pairs = [self.external_internal(trace) for trace in items]
            cls = CALIBRATIONS[self.calibration]
            self.external_ = cls.fit(np.concatenate([external for external, _ in pairs]))
            self.internal_ = cls.fit(np.concatenate([internal for _, internal in pairs]))
        self.fingerprint_ = dict(first.fingerprint)
        self.trained_on_ = []
        self.threshold_ = None
        return self

    def fit(self, data: Traced, dev: Traced | None = None) -> Self:
        """Calibrate on traced examples; labels are neither needed nor read, and ``dev`` is ignored.

        Raises:
            InputError: See :meth:`calibrate`.
        """
        items = list(data)
        for item in items:
            if not isinstance(item, TracedExample):
                raise InputError(f"fit takes traced examples. Got {type(item).__name__} instead; see calibrate.")
        return self.calibrate(item.trace for item in items)

    def _fit(self, data: Traced, dev: Traced | None) -> None:
        self.fit(data, dev)

    def check_fitted(self) -> None:
        """Refuse to score before a calibration has seen text; as published there is nothing to learn.

        Raises:
            PrerequisiteError: If it must see text first.
        """
        if self.calibration != "none" and not self.is_fitted:
            raise PrerequisiteError(
                f"The detector 'lumina' with calibration={self.calibration!r} must see unlabelled text before it "
                "scores. Call calibrate(traces) or fit(data), load a calibrated one from its folder, or use "
                "calibration='none'."
            )

    def check_reader(self, fingerprint: Mapping[str, Any]) -> None:
        """Refuse what another model reads, if it is calibrated.

        Raises:
            MismatchError: See :meth:`LearnedDetector.check_reader`.
        """
        if self.calibration != "none":
            super().check_reader(fingerprint)

    def check_unseen(self, data: Traced) -> None:
        """Allow any text: no label was read, so none can leak."""

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the two scales."""
        if self.calibration == "none":
            return {}, {"calibration": "none"}
        scales = {"external": self.external_, "internal": self.internal_}
        return {name: np.array(scale.state()) for name, scale in scales.items()}, {"calibration": self.calibration}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` returned.

        Raises:
            InputError: If it is of another calibration.
        """
        if facts.get("calibration") != self.calibration:
            raise InputError(
                f"The saved scales are of calibration={facts.get('calibration')!r}; this detector has "
                f"calibration={self.calibration!r}."
            )
        if self.calibration != "none":
            cls = CALIBRATIONS[self.calibration]
            self.external_ = cls.from_state(arrays["external"].tolist())
            self.internal_ = cls.from_state(arrays["internal"].tolist())
