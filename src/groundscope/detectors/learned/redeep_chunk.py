"""ReDeEP at chunk level: is a stretch of the response like the passage that its readers look at most?"""

from __future__ import annotations

from typing import Literal

import numpy as np

from groundscope.detectors.base import Scores
from groundscope.detectors.learned.redeep_base import Heads, ReDeEP
from groundscope.errors import check_choice
from groundscope.learn.balance import Reduction, Variant, Weighting, reduce_units
from groundscope.learn.labels import Labels, token_labels
from groundscope.learn.windows import Floats
from groundscope.text.chunks import ChunkConfig
from groundscope.trace.trace import Trace
from groundscope.trace.traced import TracedExample


class ReDeEPChunk(ReDeEP):
    """ReDeEP, chunk level.

    The response and the passages are cut into chunks. Per head, the external context score of a response chunk is
    the similarity of its text to that of the passage chunk which its tokens attend to most on average; the
    parametric knowledge score is the mean over the chunk's tokens. From there on chunks are learnt from as
    :class:`groundscope.detectors.learned.redeep.ReDeEPToken` learns from tokens. A chunk is hallucinated if any of
    its tokens is; a token gets its chunk's score, a response the mean over its chunks, whatever their lengths.

    ``variant="official"``: the released arithmetic of that class; the knowledge score is *summed* over the chunk's
    tokens. Not reproduced: the released divergence, and attention summed over the pair of chunks instead of averaged.

    Args:
        candidates: As for the token level; likewise the following ones.
        heads: N.
        layers: K.
        beta: Weight of the context.
        weighting: ``equal`` or ``correlation``.
        variant: ``paper`` or ``official``.
        max_heads: Most heads to choose.
        max_layers: Most layers to choose.
        max_beta: Largest weight to choose.
        seed: Seed of the part held out.
        size: Most characters in a chunk.
        overlap: Most characters that a chunk repeats of the one before, fewer than ``size``.
        embedder: Name or folder of a sentence-transformers model that tells how similar two chunks are (extra
            ``embed``); ``None`` compares the reading model's mean final states.
        response: Score of a response: ``mean`` or ``max`` over its chunks.

    Raises:
        InputError: If a parameter is of the wrong type or out of range.
    """

    name = "redeep-chunk"
    summary = "parametric knowledge of chosen layers against similarity to the most attended passage, per chunk"
    reference = "ReDeEP, arXiv 2410.11414, section 4.2"
    # A whole chunk has one score already.
    window = 1
    aggregation = "mean over chunks, or their maximum"
    unit = "chunk"

    def __init__(
        self,
        candidates: str | Heads = "all",
        heads: int | None = None,
        layers: int | None = None,
        beta: float | None = None,
        weighting: Weighting = "equal",
        variant: Variant = "paper",
        max_heads: int = 32,
        max_layers: int = 32,
        max_beta: float = 1.9,
        seed: int = 0,
        size: int = 256,
        overlap: int = 20,
        embedder: str | None = None,
        response: Literal["mean", "max"] = "mean",
    ) -> None:
        super().__init__(candidates, heads, layers, beta, weighting, variant, max_heads, max_layers, max_beta, seed)
        ChunkConfig(size, overlap, embedder)
        check_choice("ReDeEPChunk", "response", response, ("mean", "max"))
        self.size = size
        self.overlap = overlap
        self.embedder = embedder
        self.response = response

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that it reads."""
        return ("chunk_context_score", "response_chunk", "parametric_knowledge_score")

    @property
    def chunking(self) -> ChunkConfig:
        """How texts are cut and compared."""
        return ChunkConfig(self.size, self.overlap, self.embedder)

    def token_scores(self, trace: Trace) -> Scores:
        """Score every response token: the score of its chunk."""
        scores = self._unit_scores(trace)
        lengths = np.diff(np.append(_starts(trace), trace.tokens))
        return np.repeat(scores, lengths)

    def response_score(self, scores: Scores) -> float:
        """Return the mean or maximum over chunks of (token,) scores; NaN entries do not count.

        A chunk is a run of tokens of the same score, so neighbours with equal scores are one.
        """
        known = scores[~np.isnan(scores)]
        runs = known[np.append(True, known[1:] != known[:-1])]
        return float(runs.max() if self.response == "max" else runs.mean())

    @property
    def _reduction(self) -> Reduction:
        return self.response

    def _features(self, trace: Trace) -> tuple[Floats, Floats]:
        starts = _starts(trace)
        external = trace["chunk_context_score"][starts].astype(np.float64)
        knowledge = trace["parametric_knowledge_score"].astype(np.float64)
        if self.variant == "official":
            knowledge = np.add.reduceat(knowledge, starts, axis=0)
        else:
            knowledge = reduce_units(knowledge, starts, "mean")
        return external.reshape(len(external), -1), knowledge

    def _unit_labels(self, item: TracedExample) -> Labels:
        labels = token_labels(item.example, item.trace.layout)
        marked: Labels = np.logical_or.reduceat(labels, _starts(item.trace))
        return marked


def _starts(trace: Trace) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """First token of each chunk."""
    number = trace["response_chunk"]
    return np.flatnonzero(np.append(True, number[1:] != number[:-1])).astype(np.int64)
