"""Copying heads: heads that raise the probability of the words that they attend to, told by the weights alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from groundscope.errors import InputError, UnsupportedModelError, check_count
from groundscope.lm.circuits import HeadWeights, head_weights
from groundscope.lm.language_model import LanguageModel

# Bytes of one block of rows x vocabulary.
_BLOCK = 64 << 20


@dataclass(frozen=True, eq=False)
class CopyingScores:
    """How much each head copies.

    Attributes:
        layers: The layers that have attention.
        traces: (layer, head) trace of the head's matrix M.
        outliers: (layer, head) boundary points of M's Gershgorin discs beyond 1.5 interquartile ranges.
        rows: Rows of M whose discs were looked at.
    """

    layers: tuple[int, ...]
    traces: npt.NDArray[np.float64]
    outliers: npt.NDArray[np.int64]
    rows: int

    @property
    def ranks(self) -> npt.NDArray[np.float64]:
        """Sum of the ranks by outliers (few first) and absolute trace (large first), (layer, head); low copies."""
        from scipy.stats import rankdata

        flat = rankdata(self.outliers.ravel()) + rankdata(-np.abs(self.traces.ravel()))
        ranks: npt.NDArray[np.float64] = flat.reshape(self.outliers.shape)
        return ranks

    def best(self, count: int) -> list[tuple[int, int]]:
        """Return the (layer, head) pairs that copy most, best first; equals in order of layer and head."""
        heads = self.traces.shape[1]
        order = np.argsort(self.ranks.ravel(), kind="stable")[:count]
        return [(self.layers[int(i) // heads], int(i) % heads) for i in order]


def copying_heads(
    lm: LanguageModel, count: int = 32, *, rows: int | None = 1024, seed: int = 0
) -> list[tuple[int, int]]:
    """Return the heads of a model that copy most, as candidates for ReDeEP.

    Args:
        lm: The model; its weights are read, no text is.
        count: How many heads.
        rows: See :func:`copying_scores`.
        seed: See :func:`copying_scores`.

    Returns:
        (layer, head) pairs, 0-based, best first; all heads if there are fewer.
    """
    check_count("copying_heads", "count", count)
    return copying_scores(lm, rows=rows, seed=seed).best(count)


@torch.no_grad()
def copying_scores(lm: LanguageModel, *, rows: int | None = 1024, seed: int = 0) -> CopyingScores:
    """Return how much each head copies (ReDeEP, arXiv 2410.11414, appendix B).

    A head's matrix M = W_U W_OV W_E tells, from word to word, what attending to one adds to the logit of the other.
    Its trace is taken by cyclic identity, tr(M) = tr(W_OV W_E W_U), through matrices of the model's width. The radius
    of a row's Gershgorin disc needs all entries of that row; they are made a block of rows at a time and summed at
    once, so M is never held. The boundary points of a disc of centre a and radius R are counted as R + a and R - a.
    As the trace counts by its absolute value, heads that strongly suppress what they attend to rank high as well.

    Weights are taken as they are: gains of norms, biases, and factors that all heads share are left out, as in the
    paper's formula. Of weights in half precision, biases cost the matrices some digits.

    Args:
        lm: The model; its weights are read by :func:`groundscope.lm.circuits.head_weights`.
        rows: Rows of M to look at, drawn at random and the same for all heads, or ``None`` for all. Each row costs
            heads x vocabulary x head width multiplications: a sample of 1,024 takes about a minute on one core for
            270 heads and 49,152 words, all rows take hours. Counts of outliers depend on the draw: there, two
            samples of 256 shared 15 of their 32 best heads, two of 1,024 shared 23.
        seed: Seed of the draw.

    Raises:
        InputError: If ``rows`` is below 4, which has no quartiles.
        UnsupportedModelError: If the matrices cannot be had, or embeddings are projected.
    """
    if rows is not None:
        check_count("copying_scores", "rows", rows)
        if rows < 4:
            raise InputError(f"The 'rows' parameter of copying_scores must be at least 4 or None. Got {rows} instead.")
    words, unwords = _vocabularies(lm)
    vocabulary = len(words)
    chosen = torch.arange(vocabulary, device=words.device)
    if rows is not None and rows < vocabulary:
        drawn = np.random.default_rng(seed).choice(vocabulary, size=rows, replace=False)
        chosen = torch.from_numpy(np.sort(drawn)).to(words.device)
    weights = head_weights(lm)
    turn = _turned(words, unwords)
    traces, outliers = [], []
    for layer in weights.values():
        traces.append(_traces(layer, turn))
        outliers.append(_outliers(layer, words, unwords, chosen))
    return CopyingScores(tuple(weights), np.stack(traces), np.stack(outliers), len(chosen))


def _vocabularies(lm: LanguageModel) -> tuple[Tensor, Tensor]:
    """Input and output matrix, (word, channel) each; padded rows that only one of them has are cut off."""
    lm.anatomy.require("output", lm.name)
    head = None if lm.anatomy.unembedding is None else getattr(lm.anatomy.unembedding.head, "weight", None)
    words = lm.input_embeddings()
    if not isinstance(head, Tensor) or head.dim() != 2 or head.shape[1] != words.shape[1]:
        raise UnsupportedModelError(
            f"{lm.name} does not show what its heads copy: its output matrix and its embeddings are not equally wide."
        )
    size = min(len(words), len(head))
    exact = torch.float64 if words.dtype == torch.float64 else torch.float32
    return words[:size].to(exact), head.detach()[:size].to(words.device, exact)


def _turned(words: Tensor, unwords: Tensor) -> Tensor:
    """W_E W_U, (channel, channel), summed in float64 over blocks of words."""
    total = torch.zeros(words.shape[1], unwords.shape[1], dtype=torch.float64, device=words.device)
    for one, other in zip(torch.split(words, 8192), torch.split(unwords, 8192), strict=True):
        total += (one.t() @ other).double()
    return total


def _traces(layer: HeadWeights, turn: Tensor) -> npt.NDArray[np.float64]:
    group = len(layer.output) // len(layer.value)
    traces = []
    for head, output in enumerate(layer.output.double()):
        # tr(V O U' E) with V (channel, head channel), O (head channel, channel): sum of (E'U O') * V.
        traces.append(float(((turn @ output.t()) * layer.value[head // group].double()).sum()))
    return np.array(traces)


def _outliers(layer: HeadWeights, words: Tensor, unwords: Tensor, chosen: Tensor) -> npt.NDArray[np.int64]:
    heads, key_heads = len(layer.output), len(layer.value)
    group = heads // key_heads
    counts = []
    for head in range(heads):
        if head % group == 0:
            values = words @ layer.value[head // group]  # (word, head channel)
        step = max(1, _BLOCK // (values.element_size() * len(values)))
        points = [_points(unwords, values, layer.output[head], block) for block in torch.split(chosen, step)]
        counts.append(_beyond(torch.cat(points).cpu().double().numpy()))
    return np.array(counts, dtype=np.int64)


def _points(unwords: Tensor, values: Tensor, output: Tensor, rows: Tensor) -> Tensor:
    """Boundary points of the discs of some rows, (2 * row,)."""
    written = unwords[rows] @ output.t()  # (row, head channel)
    centres = (written * values[rows]).sum(1)
    radii = torch.linalg.vector_norm(written @ values.t(), ord=1, dim=1) - centres.abs()
    return torch.cat([radii + centres, radii - centres])


def _beyond(points: npt.NDArray[np.float64]) -> int:
    first, third = np.quantile(points, [0.25, 0.75])
    reach = 1.5 * (third - first)
    return int(np.count_nonzero((points < first - reach) | (points > third + reach)))
