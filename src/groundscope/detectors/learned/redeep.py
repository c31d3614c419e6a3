"""ReDeEP at token level: parametric knowledge against external context, head by head and layer by layer."""

from __future__ import annotations

import numpy as np

from groundscope.detectors.base import Scores
from groundscope.detectors.learned.redeep_base import ReDeEP
from groundscope.learn.labels import Labels, token_labels
from groundscope.learn.windows import Floats
from groundscope.trace.trace import Trace
from groundscope.trace.traced import TracedExample


class ReDeEPToken(ReDeEP):
    """ReDeEP, token level.

    ``variant="paper"``: heads are ranked by the correlation of their external context score with the label (most
    negative first), layers by that of their parametric knowledge score (most positive first). Each head and layer is
    min-max scaled with extremes of the examples learnt from. The score of a token is the mean of the K first layers
    minus beta times the mean of the N first heads; it is not clipped, so values beyond the extremes keep their order.
    The paper sums; with fixed N and K the mean differs by a factor on beta only, and makes beta comparable between
    them. N, K and beta are those with the highest AUROC of response scores on ``dev``; without ``dev``, a fifth of
    the sources is held out for this. Scores have no neutral point: zero is where the extremes happened to put it.

    ``variant="official"``: the released arithmetic. Ranking by AUROC, and min-max scaling of the two *sums*, over the
    examples given; token labels one to the right with one more at the end, as released; what is not given of N, K and
    beta is chosen on the same examples. ``dev`` is not used. Figures measured on the examples it was fitted on
    reproduce the published procedure, and leak. Not reproduced: the released divergence (reversed, over the
    vocabulary size, times 1e6, in half precision) and context (the whole prompt); the signals are the sound ones.

    Where every hallucinated response has labels of spans or sentences, it learns from tokens; otherwise from the
    means of responses.

    Args:
        candidates: Heads that may count: ``all``, or (layer, head) pairs such as
            :func:`groundscope.learn.copying.copying_heads` returns.
        heads: N, the number of heads; ``None`` to choose.
        layers: K, the number of layers; ``None`` to choose.
        beta: Weight of the context; ``None`` to choose from 0.1, 0.2, ... ``max_beta``.
        weighting: ``equal``, or ``correlation``: heads and layers weigh by the size of theirs.
        variant: ``paper`` or ``official``.
        max_heads: Most heads to choose.
        max_layers: Most layers to choose.
        max_beta: Largest weight to choose.
        seed: Seed of the part held out.

    Raises:
        InputError: If a parameter is of the wrong type or out of range.
    """

    name = "redeep-token"
    summary = "parametric knowledge of chosen layers against external context of chosen heads, per token"
    reference = "ReDeEP, arXiv 2410.11414, eq. 2-6"
    unit = "token"

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that it reads."""
        return ("external_context_score", "parametric_knowledge_score")

    def token_scores(self, trace: Trace) -> Scores:
        """Score every response token."""
        return self._unit_scores(trace)

    def _features(self, trace: Trace) -> tuple[Floats, Floats]:
        external = trace["external_context_score"].astype(np.float64)
        knowledge = trace["parametric_knowledge_score"].astype(np.float64)
        return external.reshape(len(external), -1), knowledge

    def _unit_labels(self, item: TracedExample) -> Labels:
        labels = token_labels(item.example, item.trace.layout)
        if self.variant == "paper":
            return labels
        # As released, a label belongs to the token whose predecessor lies in the stretch, its end included.
        moved = np.zeros_like(labels)
        moved[1:] |= labels[:-1]
        moved[2:] |= labels[:-2]
        return moved
