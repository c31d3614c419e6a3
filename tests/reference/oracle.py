"""The naive reference: every signal of one example, in float64, from the definitions only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import log_softmax, logsumexp, softmax
from transformers import PreTrainedModel

from reference import signals
from reference.families import FAMILIES, Family
from reference.model_pass import in_float64, lens, read
from reference.signals import Array

Range = tuple[int, int]

PER_HEAD = (
    "lookback_ratio",
    "lookback_ratio_passages",
    "aggtruth_sum",
    "aggtruth_cosine",
    "aggtruth_entropy",
    "aggtruth_js",
    "external_context_score",
    "chunk_context_score",
)
PER_LAYER = ("parametric_knowledge_score", "lens_entropy")
CONTRAST = ("mmd", "token_logprob_contrast")
PER_TOKEN = (
    "information_processing_rate",
    "information_processing_rate_calibrated",
    "token_logprob",
    "token_entropy",
    "token_energy",
    "passage_percentage",
    "response_chunk",
    *CONTRAST,
)
SIGNALS = (*PER_HEAD, *PER_LAYER, *PER_TOKEN, "passage_attention")


def run(
    model: PreTrainedModel,
    prompt_ids: Sequence[int],
    response_ids: Sequence[int],
    passages: Sequence[Range],
    header: Range,
    contrast_prompt_ids: Sequence[int] | None = None,
    family: str | Family | None = None,
    chunks: tuple[Sequence[Range], Sequence[Range], Array | None] | None = None,
) -> dict[str, Array]:
    """Computes every signal.

    Args:
        model: A causal language model of any type; it is copied, not changed.
        prompt_ids: The P tokens of the prompt, P ≥ 1.
        response_ids: The T tokens of the response.
        passages: Half-open ranges of the passage tokens in the prompt.
        header: Half-open range of the tokens that open the assistant's turn; (P, P) where there are none.
        contrast_prompt_ids: The prompt around another document; without it `CONTRAST` is left out.
        family: What is known about the architecture; by default the family named like the model type.
        chunks: Token ranges of passage chunks in the prompt and of response chunks in the response, and their
            (response chunk, passage chunk) similarity or None; by default passages and response as they are.

    Returns:
        float64 arrays by name: `PER_HEAD` (token, layer with attention, head), `PER_LAYER` (token, layer),
        `PER_TOKEN` (token,), `passage_attention` (token, passage); and `external_context_score_gap`
        (token, layer, head), see `signals.external_context_score`; likewise `chunk_context_score_gap`.
    """
    if not isinstance(family, Family):
        family = FAMILIES[family or model.config.model_type]
    twin = in_float64(model)
    P, T = len(prompt_ids), len(response_ids)
    rows = [P + t - 1 for t in range(T)]
    main = read(twin, family, [*prompt_ids, *response_ids])
    passage_keys = [key for start, end in passages for key in range(start, end)]
    pieces = chunks or ([r for r in passages if r[0] < r[1]], [(0, T)], None)
    result = {
        **_chunk_signals(main.attentions, main.states, P, *pieces),
        **_attention_signals(main.attentions, main.states, P, T, passages, passage_keys, header[0]),
        **_lens_signals(twin, family, main.mid[:, rows], main.post[:, rows], list(response_ids)),
        **_output_signals(main.logits[rows], list(response_ids)),
        "passage_percentage": np.array([len(passage_keys) / (P + t) for t in range(T)]),
    }
    if contrast_prompt_ids is not None:
        other_rows = [len(contrast_prompt_ids) + t - 1 for t in range(T)]
        other = read(twin, family, [*contrast_prompt_ids, *response_ids]).logits[other_rows]
        p, q = softmax(main.logits[rows], axis=-1), softmax(other, axis=-1)
        embeddings = signals.unit_rows(twin.get_input_embeddings().weight.detach().numpy())
        result["mmd"] = np.array([signals.mmd(p[t], q[t], embeddings) for t in range(T)])
        result["token_logprob_contrast"] = log_softmax(other, axis=-1)[range(T), list(response_ids)]
    return result


def _attention_signals(
    attentions: list[Array],
    states: Array,
    P: int,
    T: int,
    passages: Sequence[Range],
    passage_keys: list[int],
    header_start: int,
) -> dict[str, Array]:
    layers, heads = len(attentions), attentions[0].shape[0]
    names = [name for name in PER_HEAD if name != "chunk_context_score"]
    out = {name: np.zeros((T, layers, heads)) for name in (*names, "external_context_score_gap")}
    out["passage_attention"] = np.zeros((T, len(passages)))
    for t in range(T):
        predicting, own = P + t - 1, P + t
        new = list(range(header_start, predicting + 1))
        for layer, weights in enumerate(attentions):
            for head in range(heads):
                row = weights[head, predicting]
                at = (t, layer, head)
                out["lookback_ratio"][at] = signals.lookback_ratio(row, list(range(header_start)), new)
                out["lookback_ratio_passages"][at] = signals.lookback_ratio(row, passage_keys, new)
                score, gap = signals.external_context_score(row, passage_keys, states, predicting)
                out["external_context_score"][at], out["external_context_score_gap"][at] = score, gap
            on_passages = weights[:, own, passage_keys]  # (head, passage key)
            out["aggtruth_sum"][t, layer] = signals.aggtruth_sum(on_passages)
            out["aggtruth_cosine"][t, layer] = signals.aggtruth_cosine(on_passages)
            out["aggtruth_entropy"][t, layer] = signals.aggtruth_entropy(on_passages)
            out["aggtruth_js"][t, layer] = signals.aggtruth_js(on_passages)
            for index, (start, end) in enumerate(passages):
                out["passage_attention"][t, index] += weights[:, own, start:end].sum() / heads / layers
    return out


def _chunk_signals(
    attentions: list[Array],
    states: Array,
    P: int,
    passages: Sequence[Range],
    response: Sequence[Range],
    similarity: Array | None,
) -> dict[str, Array]:
    T = response[-1][1]
    shape = (T, len(attentions), attentions[0].shape[0])
    out = {"chunk_context_score": np.zeros(shape), "chunk_context_score_gap": np.zeros(shape)}
    out["response_chunk"] = np.zeros(T)
    for number, (start, end) in enumerate(response):
        own = (P + start, P + end)
        if similarity is None:
            likeness = [signals.cosine_of_means(states, own, passage) for passage in passages]
        else:
            likeness = list(similarity[number])
        for layer, weights in enumerate(attentions):
            for head in range(shape[2]):
                score, gap = signals.chunk_context_score(weights[head], range(*own), passages, likeness)
                out["chunk_context_score"][start:end, layer, head] = score
                out["chunk_context_score_gap"][start:end, layer, head] = gap
        out["response_chunk"][start:end] = number
    return out


def _lens_signals(
    model: PreTrainedModel, family: Family, mid: Array, post: Array, response_ids: list[int]
) -> dict[str, Array]:
    layers, T = len(post), len(response_ids)
    out = {name: np.zeros((T, layers)) for name in PER_LAYER}
    seen = []  # per layer: (token, word)
    for layer in range(layers):
        before = softmax(lens(model, family, mid[layer]), axis=-1)
        after = softmax(lens(model, family, post[layer]), axis=-1)
        out["parametric_knowledge_score"][:, layer] = signals.jensen_shannon(before, after)
        out["lens_entropy"][:, layer] = signals.entropy(after)
        seen.append(after)
    rate = np.array([signals.information_processing_rate([p[t] for p in seen]) for t in range(T)])
    final = seen[-1]
    out["information_processing_rate"] = rate
    out["information_processing_rate_calibrated"] = rate * final[range(T), response_ids] / final.max(axis=-1)
    return out


def _output_signals(logits: Array, response_ids: list[int]) -> dict[str, Array]:
    return {
        "token_logprob": log_softmax(logits, axis=-1)[range(len(response_ids)), response_ids],
        "token_entropy": signals.entropy(softmax(logits, axis=-1)),
        "token_energy": -logsumexp(logits, axis=-1),
    }
