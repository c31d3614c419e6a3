"""ReDeEP's external context score of chunks: which passage chunk a response chunk looks at, and how alike they are.

At chunk level the rows of the tokens themselves are read (of the states that *read* the chunk's tokens), where the
token level reads the rows that predict them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from groundscope.lm.prompt.chunks import Chunks
from groundscope.lm.prompt.layout import Layout


def chunks_of(layout: Layout) -> Chunks:
    """Return a layout's chunks; where it has none, each passage is one and the response is one."""
    if layout.chunks is not None:
        return layout.chunks
    passages = tuple((start, end) for start, end in layout.passages if start < end)
    return Chunks(passages, ((0, layout.response_length),))


def chunk_numbers(chunks: Chunks) -> Tensor:
    """Return the number of each response token's chunk, (token,)."""
    return torch.repeat_interleave(_lengths(chunks.response))


def pooled_attention(weights: Tensor, chunks: Chunks) -> Tensor:
    """Return the mean weight on the tokens of each passage chunk.

    Args:
        weights: (head, row, key) attention weights.
        chunks: Where the chunks are.

    Returns:
        (head, row, passage chunk).
    """
    if not chunks.passages:
        return weights.new_zeros(*weights.shape[:-1], 0)
    first, last = min(start for start, _ in chunks.passages), max(end for _, end in chunks.passages)
    members = weights.new_zeros(last - first, len(chunks.passages))  # (key, passage chunk)
    for number, (start, end) in enumerate(chunks.passages):
        members[start - first : end - first, number] = 1 / (end - start)
    return weights[..., first:last] @ members


def most_attended(pooled: Tensor, chunks: Chunks) -> Tensor:
    """Return the passage chunk that each response chunk attends to most on average.

    Args:
        pooled: (head, token, passage chunk) of the tokens' own rows.
        chunks: Where the chunks are.

    Returns:
        (head, response chunk) numbers of passage chunks, the first one of equals; no column without passages.
    """
    heads, _, count = pooled.shape
    if count == 0:
        return torch.zeros(heads, 0, dtype=torch.long, device=pooled.device)
    means = torch.stack([pooled[:, start:end].mean(1) for start, end in chunks.response], dim=1)
    return means.argmax(-1)


def chunk_scores(winners: Sequence[Tensor], similarity: Tensor, chunks: Chunks) -> Tensor:
    """Return the similarity of each token's chunk to the passage chunk that won.

    Args:
        winners: Per layer, (head, response chunk) numbers of passage chunks.
        similarity: (response chunk, passage chunk).
        chunks: Where the chunks are.

    Returns:
        (layer, head, token); 0 where there is no passage.
    """
    if not chunks.passages:
        tokens = chunks.response[-1][1]
        return similarity.new_zeros(len(winners), len(winners[0]), tokens)
    index = torch.stack(list(winners)).to(similarity.device)  # (layer, head, response chunk)
    rows = torch.arange(len(chunks.response), device=similarity.device)
    values = similarity[rows, index]
    return values.repeat_interleave(_lengths(chunks.response).to(similarity.device), dim=-1)


def similarity_of(chunks: Chunks, states: Tensor, prompt: int) -> Tensor:
    """Return (response chunk, passage chunk) similarities: as given, or cosines of mean final states.

    Args:
        chunks: Where the chunks are.
        states: (position, channel) final-normed last states of prompt and response.
        prompt: Tokens in the prompt.
    """
    exact = torch.float64 if states.dtype == torch.float64 else torch.float32
    if chunks.similarity is not None:
        return torch.from_numpy(chunks.similarity).to(states.device, exact)
    passages = _means(states, chunks.passages, exact)
    response = _means(states, [(prompt + start, prompt + end) for start, end in chunks.response], exact)
    return response @ passages.t()


def _means(states: Tensor, ranges: Sequence[tuple[int, int]], dtype: torch.dtype) -> Tensor:
    """Unit vectors along the mean of each range, (range, channel)."""
    means = [states[start:end].to(dtype).mean(0) for start, end in ranges]
    stacked = torch.stack(means) if means else states.new_zeros(0, states.shape[-1], dtype=dtype)
    return torch.nn.functional.normalize(stacked, dim=-1)


def _lengths(ranges: Sequence[tuple[int, int]]) -> Tensor:
    return torch.tensor([end - start for start, end in ranges])
