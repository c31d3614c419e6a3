"""Signals from the output distribution, with the passages and with a random document."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from groundscope.lm.anatomy.unembedding import Unembedding
from groundscope.trace.signals.forms import mmd_form
from groundscope.trace.signals.mmd import shift_norm, truncated

# Bytes of logits held at once; large enough for one efficient product with the output matrix.
_LOGIT_BYTES = 64 << 20


def row_blocks(rows: int, vocabulary: int) -> Iterator[slice]:
    """Cut rows so that one block of logits stays within bounds."""
    step = max(1, _LOGIT_BYTES // (4 * vocabulary))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def log_softmax_(logits: Tensor) -> Tensor:
    """Log probabilities over the last axis, in place, a cache-sized part at a time."""
    for part in cache_blocks(logits):
        # The largest is taken off first: large logits would lose their differences otherwise.
        part.sub_(part.amax(-1, keepdim=True))
        part.sub_(part.exp().sum(-1, keepdim=True).log_())
    return logits


def cache_blocks(values: Tensor) -> tuple[Tensor, ...]:
    """Cut (row, vocabulary) into row blocks that stay in a CPU's cache; one block elsewhere."""
    if values.device.type != "cpu":
        return (values,)
    return torch.split(values, max(1, 1_400_000 // (4 * max(1, values.shape[-1]))))


def entropy(logs: Tensor) -> Tensor:
    """Entropy in nats of log probabilities, (row, vocabulary) -> (row,)."""
    return torch.cat([-(part.exp() * part).sum(-1) for part in cache_blocks(logs)]).clamp_(min=0)


def output_signals(
    unembedding: Unembedding, normed: Tensor, targets: Tensor, wanted: frozenset[str]
) -> dict[str, Tensor]:
    """Signals of the output distribution.

    Args:
        unembedding: Turns normed states into logits.
        normed: (token, channel) final-normed last states of the predicting rows.
        targets: (token,) response ids.
        wanted: Names among ``token_logprob``, ``token_entropy``, ``token_energy``.

    Returns:
        Per name a (token,) tensor.
    """
    blocks: dict[str, list[Tensor]] = {name: [] for name in wanted}
    for rows in row_blocks(len(normed), vocabulary_of(unembedding, normed)):
        for name, values in signals_of_logits(unembedding.logits(normed[rows]), targets[rows], wanted).items():
            blocks[name].append(values)
    return {name: torch.cat(parts) for name, parts in blocks.items()}


def signals_of_logits(logits: Tensor, targets: Tensor, wanted: frozenset[str] | set[str]) -> dict[str, Tensor]:
    """The same of (row, vocabulary) logits, which are overwritten if the entropy is wanted."""
    out: dict[str, Tensor] = {}
    total = logits.logsumexp(-1)
    if "token_energy" in wanted:
        out["token_energy"] = -total
    if "token_logprob" in wanted:
        out["token_logprob"] = logits.gather(-1, targets[:, None]).squeeze(-1) - total
    if "token_entropy" in wanted:
        out["token_entropy"] = entropy(logits.sub_(total[:, None]))
    return out


def contrast_signals(
    unembedding: Unembedding,
    normed: Tensor | None,
    contrast: Tensor,
    targets: Tensor,
    wanted: frozenset[str],
    embeddings: Tensor,
    norms: Tensor,
) -> dict[str, Tensor]:
    """Signals that compare the output distribution with the one under a random document.

    The squared MMD (LUMINA's eq. 4) is in closed form over the whole vocabulary and under the cosine kernel, see
    :mod:`groundscope.trace.signals.mmd`.

    Args:
        unembedding: Turns normed states into logits.
        normed: (token, channel) states under the passages; read for the forms of ``mmd`` only.
        contrast: (token, channel) states under the random document.
        targets: (token,) response ids.
        wanted: Names among ``mmd`` and its forms, ``token_logprob_contrast``.
        embeddings: (vocabulary, channel) input embeddings.
        norms: (vocabulary,) their norms.

    Returns:
        Per name a (token,) tensor.
    """
    forms = {name: form for name in wanted if (form := mmd_form(name)) is not None}
    blocks: dict[str, list[Tensor]] = {name: [] for name in wanted}
    for rows in row_blocks(len(contrast), 2 * vocabulary_of(unembedding, contrast)):
        other = log_softmax_(unembedding.logits(contrast[rows]))
        if "token_logprob_contrast" in wanted:
            blocks["token_logprob_contrast"].append(other.gather(-1, targets[rows, None]).squeeze(-1))
        if not forms or normed is None:
            continue
        p, q = log_softmax_(unembedding.logits(normed[rows])).exp_(), other.exp_()
        for name, form in forms.items():
            if form.top_k is not None:
                blocks[name].append(truncated(p, q, embeddings, norms, form))
        if "mmd" in forms:  # last: it works in place
            blocks["mmd"].append(shift_norm(p.sub_(q), embeddings, norms))
    return {name: torch.cat(parts) for name, parts in blocks.items()}


def vocabulary_of(unembedding: Unembedding, normed: Tensor) -> int:
    """Return the number of logits per row."""
    weight = getattr(unembedding.head, "weight", None)
    return int(weight.shape[0]) if isinstance(weight, Tensor) else int(unembedding.logits(normed[:1]).shape[-1])
