"""What the commands about answers share: how responses are read, and how a verdict is written as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from groundscope.cli.permanent import permanent

if TYPE_CHECKING:
    from groundscope.scope import Scope
    from groundscope.verdict import Verdict

Format = Literal["text", "json", "html"]
ContrastSource = Literal["auto", "pool", "examples"]


@dataclass(frozen=True)
class Reading:
    """How responses are read: everything that Scope.from_pretrained takes."""

    model: str
    detector: str
    threshold: float | None
    device: str | None
    dtype: str
    template: Path | None
    long_context: str
    batch_size: int
    seed: int
    span_threshold: float | None = None
    contrast: ContrastSource = "auto"
    profile: Path | None = None
    max_false_alarm: float | None = None
    confidence: float | None = None

    @permanent()
    def load(self) -> Scope:
        """Load the model and the detector; this is where torch is imported."""
        from groundscope.lm.prompt.template import PromptTemplate
        from groundscope.scope import Scope

        return Scope.from_pretrained(
            self.model,
            detector=self.detector,
            threshold=self.threshold,
            span_threshold=self.span_threshold,
            dtype=None if self.dtype == "auto" else self.dtype,
            device=self.device,
            template=None if self.template is None else PromptTemplate.from_file(self.template),
            long_context=self.long_context,
            contrast=self.contrast,
            batch_size=self.batch_size,
            seed=self.seed,
            profile=self.profile,
            max_false_alarm=self.max_false_alarm,
            confidence=self.confidence,
        )


def json_line(verdict: Verdict, include_context: bool) -> str:
    """Return the verdict as one line of JSON."""
    return json.dumps(verdict.to_dict(include_context), ensure_ascii=False, allow_nan=False)
