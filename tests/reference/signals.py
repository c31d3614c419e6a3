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


def chunk_context_score(
    weights: Array,
    own_rows: Sequence[int],
    passage_chunks: Sequence[tuple[int, int]],
    similarity: Sequence[float],
) -> tuple[float, float]:
    """Similarity of a response chunk to the passage chunk that one head looks at most; arXiv 2410.11414, 4.2.

    Args:
        weights: (row, key) weights of one head.
        own_rows: Positions of the response chunk's tokens.
        passage_chunks: Token ranges.
        similarity: Of the response chunk to each of them.

    Returns:
        The similarity, and by how much the most attended chunk leads, relative to its mean weight.
    """
    if not passage_chunks:
        return 0.0, np.inf
    looks = [
        np.mean([weights[row, key] for row in own_rows for key in range(start, end)]) for start, end in passage_chunks
    ]
    winner = int(np.argmax(looks))
    others = [look for index, look in enumerate(looks) if index != winner]
    # Where nothing can be seen of any of them the first one counts, for the fast path too.
    gap = np.inf if not others or looks[winner] == 0 else (looks[winner] - max(others)) / looks[winner]
    return float(similarity[winner]), float(gap)


def cosine_of_means(states: Array, one: tuple[int, int], other: tuple[int, int]) -> float:
    """Cosine of the mean states of two stretches."""
    a, b = states[slice(*one)].mean(axis=0), states[slice(*other)].mean(axis=0)
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


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


def kernel_mmd(p: Array, q: Array, kernel: Array) -> float:
    """ΣΣ P P k + ΣΣ Q Q k − 2 ΣΣ P Q k over every pair of words, from a (word, word) kernel; arXiv 2509.21875 Eq. 4."""
    total = 0.0
    for u in range(len(p)):
        for v in range(len(p)):
            total += (p[u] * p[v] + q[u] * q[v] - 2 * p[u] * q[v]) * kernel[u, v]
    return float(total)


def cosine_kernel(embeddings: Array) -> Array:
    """½(1 + cos) of every pair."""
    unit = unit_rows(embeddings)
    return (1 + unit @ unit.T) / 2


def rbf_kernel(embeddings: Array, sigma: float) -> Array:
    """exp(−‖·‖²/2σ²) of every pair, on embeddings as they are."""
    between = embeddings[:, None] - embeddings[None]
    return np.exp(-(between**2).sum(axis=-1) / (2 * sigma**2))


def likeliest(p: Array, k: int) -> Array:
    """The k largest probabilities where they stand, 0 elsewhere."""
    kept = np.zeros_like(p)
    chosen = np.argsort(-p)[:k]
    kept[chosen] = p[chosen]
    return kept
