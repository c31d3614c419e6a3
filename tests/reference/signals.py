"""Every signal in plain float64 NumPy, one short function each, straight from its definition.

Arguments: `weights` are post-softmax attention weights of one layer, (head, row, key); P is the length of the
prompt, t a response token, its predicting row P + t − 1 and its own row P + t.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def mean_or_zero(values: Array) -> float:
    return float(values.mean()) if values.size else 0.0


def lookback_ratio(row: Array, context: list[int], new: list[int]) -> float:
    """mean(context) / (mean(context) + mean(new)) of one head's predicting row; arXiv 2407.07071.

    Keys outside a sliding window, whose weight is exactly 0, do not count into the means.
    """
    if not new:
        return 1.0
    context, new = [key for key in context if row[key] > 0], [key for key in new if row[key] > 0]
    on_context, on_new = mean_or_zero(row[context]), mean_or_zero(row[new])
    return on_context / (on_context + on_new) if on_context + on_new > 0 else 0.0


def aggtruth_sum(passage: Array) -> Array:
    """(head,) from the (head, passage key) weights of an own row; arXiv 2506.18628."""
    return passage.sum(axis=1)


def aggtruth_cosine(passage: Array) -> Array:
    """Mean cosine with the other heads of the layer; 0 for a head that ignores the passages."""
    heads = len(passage)
    result = np.zeros(heads)
    for h in range(heads):
        for other in range(heads):
            norms = np.linalg.norm(passage[h]) * np.linalg.norm(passage[other])
            if other != h and norms > 0:
                result[h] += passage[h] @ passage[other] / norms / (heads - 1)
    return result


def with_residual(passage: Array) -> Array:
    """Appends the weight that is not on the passages, never below 0: (head, passage key + 1)."""
    return np.concatenate([passage, np.maximum(1 - passage.sum(axis=1, keepdims=True), 0)], axis=1)


def entropy(p: Array) -> Array:
    """Shannon entropy in nats along the last axis, with 0 log 0 = 0."""
    return -(p * np.log(np.where(p > 0, p, 1))).sum(axis=-1)


def aggtruth_entropy(passage: Array) -> Array:
    return entropy(with_residual(passage)) / np.log(2)


def jensen_shannon(p: Array, q: Array) -> Array:
    """Jensen–Shannon divergence in nats along the last axis."""
    mixture = (p + q) / 2
    left = np.where(p > 0, p * np.log(np.where(p > 0, p, 1) / np.where(p > 0, mixture, 1)), 0)
    right = np.where(q > 0, q * np.log(np.where(q > 0, q, 1) / np.where(q > 0, mixture, 1)), 0)
    return np.maximum((left + right).sum(axis=-1) / 2, 0)


def aggtruth_js(passage: Array) -> Array:
    """Jensen–Shannon distance of each head to the mean of all heads of the layer."""
    extended = with_residual(passage)
    reference = extended.mean(axis=0)
    p, q = extended / extended.sum(axis=1, keepdims=True), reference / reference.sum()
    return np.sqrt(jensen_shannon(p, np.broadcast_to(q, p.shape)))


def external_context_score(row: Array, passage: list[int], states: Array, query: int) -> tuple[float, float]:
    """Cosine of the predicting state with the mean state of the most attended tenth; arXiv 2410.11414.

    Args:
        row: (key,) weights of one head.
        passage: Positions of the passage tokens.
        states: (position, hidden) final-normed last states.
        query: The predicting row.

    Returns:
        The score, and the gap in weight between the last token chosen and the first left out, relative to the
        former (inf where all are chosen): the score is arbitrary where the gap is 0.
    """
    if not passage:
        return 0.0, np.inf
    count = max(1, int(0.1 * len(passage)))
    order = sorted(passage, key=lambda key: -row[key])
    chosen, left = order[:count], order[count:]
    mean, own = states[chosen].mean(axis=0), states[query]
    norms = np.linalg.norm(mean) * np.linalg.norm(own)
    score = float(mean @ own / norms) if norms > 0 else 0.0
    if not left:
        return score, np.inf
    border = row[chosen[-1]]
    return score, float((border - row[left[0]]) / border) if border > 0 else 0.0


def information_processing_rate(lens: Sequence[Array]) -> float:
    """Depth-weighted share of the final choice not yet made, over certainty; arXiv 2509.21875 Eq. 8.

    Args:
        lens: Probabilities (word,) of each layer at one row, the last layer's being the model's output.
    """
    final = lens[-1]
    best = int(final.argmax())
    above = below = 0.0
    for layer, p in enumerate(lens[:-1], start=1):
        above += layer * (1 - min(p[best] / final[best], 1))
        uncertainty = float(entropy(p))
        below += layer / uncertainty if uncertainty > 0 else np.inf
    return above / below if below > 0 else 0.0


def unit_rows(embeddings: Array) -> Array:
    norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
    return embeddings / np.where(norms > 0, norms, 1)


def mmd(p: Array, q: Array, unit_embeddings: Array) -> float:
    """½‖(P − Q)Ê‖² with unit-norm rows Ê: squared maximum mean discrepancy under the kernel ½(1 + cos)."""
    return float(0.5 * np.sum(((p - q) @ unit_embeddings) ** 2))
