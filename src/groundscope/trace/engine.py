"""The engine: plans the fewest passes for the requested signals, batches them, and reduces block by block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from groundscope.errors import (
    ContextTooLongError,
    GroundscopeError,
    InputError,
    LayoutError,
    NonFiniteError,
    PrerequisiteError,
    UnsupportedModelError,
    check_choice,
    check_count,
)
from groundscope.lm.prompt.layout import Ids, Layout
from groundscope.trace.capture import PassCapture
from groundscope.trace.signals import check_signals, layer_of, sources_of, spec_of
from groundscope.trace.signals.attention import AttentionRows, RowGeometry, context_scores
from groundscope.trace.signals.chunks import chunk_numbers, chunk_scores, chunks_of, similarity_of
from groundscope.trace.signals.forms import mmd_form
from groundscope.trace.signals.lens import lens_signals
from groundscope.trace.signals.output import contrast_signals, output_signals
from groundscope.trace.trace import FloatArray, Trace

if TYPE_CHECKING:
    from groundscope.lm.language_model import LanguageModel

PaddingSide = Literal["right", "left"]
# Padded tokens in one batch: beyond this a CPU gains nothing from batching.
_CPU_TOKENS = 4096
_GPU_TOKENS = 65536


@dataclass(frozen=True)
class _Pass:
    """One sequence to be read: an example's prompt, or its prompt around random document ``contrast``."""

    example: int
    ids: Ids
    prompt: int
    contrast: int = -1


@dataclass
class _Work:
    """What has been gathered for one example so far; normed states wait here for their contrast."""

    layout: Layout
    values: dict[str, Tensor] = field(default_factory=dict)
    normed: Tensor | None = None
    contrasts: dict[int, Tensor] = field(default_factory=dict)
    blind_layers: int = 0


def trace_layouts(
    lm: LanguageModel,
    layouts: Sequence[Layout],
    signals: Sequence[str],
    *,
    batch_size: int = 8,
    padding_side: PaddingSide = "right",
) -> list[Trace]:
    """Read layouts and return their traces in order, or raise the first error.

    Args:
        lm: The model that reads.
        layouts: What to read.
        signals: Names of signals.
        batch_size: At most so many sequences at once.
        padding_side: Where shorter sequences of a batch are padded; the results are the same.

    Raises:
        GroundscopeError: See :meth:`groundscope.lm.language_model.LanguageModel.trace`.
    """
    check_signals(signals)
    traces = []
    for result in trace_each(lm, layouts, signals, batch_size=batch_size, padding_side=padding_side):
        if isinstance(result, GroundscopeError):
            raise result
        traces.append(result)
    return traces


def trace_one_or_many(
    lm: LanguageModel, layouts: Layout | Iterable[Layout], signals: Sequence[str], **options: Any
) -> Trace | list[Trace]:
    """What is behind :meth:`groundscope.lm.language_model.LanguageModel.trace`."""
    if isinstance(layouts, Layout):
        return trace_layouts(lm, [layouts], signals, **options)[0]
    return trace_layouts(lm, check_layouts(layouts), signals, **options)


def trace_each(
    lm: LanguageModel,
    layouts: Sequence[Layout],
    signals: Sequence[str],
    *,
    batch_size: int = 8,
    padding_side: PaddingSide = "right",
) -> list[Trace | GroundscopeError]:
    """Like :func:`trace_layouts`, but an example that fails yields its error and harms no other.

    With ``()`` for ``signals`` nothing is read: the traces wait for what detectors gather themselves.

    Raises:
        InputError: If an argument has the wrong type.
        UnknownNameError: If a signal is not known.
        UnsupportedModelError: If the model cannot yield one of them.
    """
    requested = () if signals == () else check_signals(signals)
    check_choice("trace", "padding_side", padding_side, ("right", "left"))
    check_count("trace", "batch_size", batch_size)
    layouts = check_layouts(layouts)
    return _Engine(lm, requested, batch_size, padding_side).run(layouts)


def check_support(lm: LanguageModel, signals: Sequence[str]) -> None:
    """Refuse signals that a model cannot yield, before anything is read.

    Raises:
        UnsupportedModelError: If it cannot yield one of them; the message says why.
    """
    if signals:
        _Engine(lm, check_signals(signals), 1, "right")


def check_layouts(layouts: object) -> list[Layout]:
    """Return layouts as a list.

    Raises:
        InputError: If it is no iterable of layouts.
    """
    wanted = "The 'layouts' parameter of trace must be a Layout or several."
    advice = "; lm.renderer().layout(example) lays out text, Layout.from_ids token ids."
    if isinstance(layouts, (str, bytes, Mapping)) or not isinstance(layouts, Iterable):
        raise InputError(f"{wanted} Got {type(layouts).__name__} instead{advice}")
    items = list(layouts)
    for index, item in enumerate(items):
        if not isinstance(item, Layout):
            raise InputError(f"{wanted} Got {type(item).__name__} at position {index} instead{advice}")
    return items


class _Engine:
    def __init__(self, lm: LanguageModel, signals: tuple[str, ...], batch_size: int, padding_side: PaddingSide) -> None:
        self._lm = lm
        self._signals = signals
        self._batch_size = batch_size
        self._left = padding_side == "left"
        sources = sources_of(signals)
        for source in sources & {"attention", "lens", "output"}:
            lm.anatomy.require(source, lm.name)
        if "contrast" in sources or "lens" in sources:
            lm.anatomy.require("output", lm.name)
        self._needs_model = bool(sources - {"layout"})
        # The log probability under the random document needs no look at the passages.
        self._compares = any(mmd_form(name) is not None for name in signals)
        self._needs_own_pass = bool(sources - {"layout", "contrast"}) or self._compares
        self._attention = frozenset(name for name in signals if spec_of(name).source == "attention")
        self._lens = frozenset(name for name in signals if spec_of(name).source == "lens")
        self._output = frozenset(name for name in signals if spec_of(name).source == "output")
        self._contrast = frozenset(name for name in signals if spec_of(name).source == "contrast")
        self._states = {name: layer for name in signals if (layer := layer_of(name)) is not None}
        for name, layer in self._states.items():
            if layer >= len(lm.anatomy.layers):
                last = len(lm.anatomy.layers) - 1
                raise UnsupportedModelError(f"{lm.name} has the layers 0 to {last}. Got {name!r}; choose one of these.")
        self._token_budget = _CPU_TOKENS if lm.device.type == "cpu" else _GPU_TOKENS

    def run(self, layouts: Sequence[Layout]) -> list[Trace | GroundscopeError]:
        results: list[Trace | GroundscopeError | None] = [None] * len(layouts)
        work: dict[int, _Work] = {}
        passes: list[_Pass] = []
        for index, layout in enumerate(layouts):
            try:
                passes += self._plan(index, layout)
                work[index] = _Work(layout)
            except GroundscopeError as exc:
                results[index] = exc
        for batch in self._batches(passes):
            self._read(batch, work, results)
            for index in {p.example for p in batch} & set(work):
                if self._complete(work[index]):
                    results[index] = self._finish(work.pop(index))
        return [result if result is not None else self._finish(work[i]) for i, result in enumerate(results)]

    def _plan(self, index: int, layout: Layout) -> list[_Pass]:
        if layout.response_length == 0:
            raise LayoutError("A response of at least one token is needed. Got an empty response instead.")
        if self._contrast and not layout.contrast_prompt_ids:
            raise LayoutError(
                f"The signals {sorted(self._contrast)} compare with a random document, and this layout has none. "
                "Pass contrast_prompt_ids to Layout.from_ids, or score through gs.Scope, which draws one."
            )
        if not self._needs_model:
            return []
        passes = []
        if self._needs_own_pass:
            passes.append(_Pass(index, np.concatenate([layout.prompt_ids, layout.response_ids]), layout.prompt_length))
        if self._contrast:
            for number, prompt in enumerate(layout.contrast_prompt_ids):
                passes.append(_Pass(index, np.concatenate([prompt, layout.response_ids]), len(prompt), number))
        limit = self._lm.max_length
        vocabulary = self._lm.input_embeddings().shape[0]
        for item in passes:
            if limit is not None and len(item.ids) > limit:
                raise ContextTooLongError(item.prompt, layout.response_length, limit)
            if int(item.ids.max()) >= vocabulary:
                raise LayoutError(
                    f"Token ids must be below the model's vocabulary of {vocabulary}. "
                    f"Got {int(item.ids.max())} instead; use the tokenizer that belongs to the model."
                )
        return passes

    def _batches(self, passes: list[_Pass]) -> list[list[_Pass]]:
        """Sequences of like length together, longest first, so that running out of memory shows early."""
        batches: list[list[_Pass]] = []
        for item in sorted(passes, key=lambda p: -len(p.ids)):
            if batches and len(batches[-1]) < self._batch_size:
                longest = len(batches[-1][0].ids)
                if longest * (len(batches[-1]) + 1) <= self._token_budget:
                    batches[-1].append(item)
                    continue
            batches.append([item])
        return batches

    def _read(self, batch: list[_Pass], work: dict[int, _Work], results: list[Trace | GroundscopeError | None]) -> None:
        batch = [item for item in batch if item.example in work]
        if not batch:
            return
        try:
            self._forward(batch, work)
        except torch.OutOfMemoryError:
            if len(batch) > 1:
                middle = len(batch) // 2
                self._read(batch[:middle], work, results)
                self._read(batch[middle:], work, results)
                return
            results[batch[0].example] = PrerequisiteError(
                f"The device ran out of memory on {len(batch[0].ids)} tokens. "
                "Use dtype='bfloat16', a smaller model, shorter passages, or device='cpu'."
            )
            work.pop(batch[0].example)

    @torch.inference_mode()
    def _forward(self, batch: list[_Pass], work: dict[int, _Work]) -> None:
        width = max(len(item.ids) for item in batch)
        ids = np.zeros((len(batch), width), dtype=np.int64)
        geometries = []
        for row, item in enumerate(batch):
            offset = width - len(item.ids) if self._left else 0
            ids[row, offset : offset + len(item.ids)] = item.ids
            layout = work[item.example].layout
            geometries.append(
                RowGeometry(
                    row,
                    offset,
                    item.prompt,
                    layout.response_length,
                    layout.passages,
                    layout.header[0],
                    chunks_of(layout),
                )
            )
        own = [(item, g) for item, g in zip(batch, geometries, strict=True) if item.contrast < 0]
        collectors = {g.batch: AttentionRows(g, self._attention) for _, g in own} if self._attention else {}
        capture = PassCapture(
            self._lm.anatomy,
            list(collectors.values()),
            [g for _, g in own] if self._lens else [],
            "parametric_knowledge_score" in self._lens,
            len(batch),
            ([g for _, g in own], tuple(self._states.values())),
        )
        device = self._lm.device
        inputs = {"input_ids": torch.from_numpy(ids).to(device)}
        # All ones is recognised as no mask at all. Padding on the right needs none: nothing before it sees it.
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        if self._left and len({len(item.ids) for item in batch}) > 1:
            lengths = torch.tensor([len(item.ids) for item in batch], device=device)
            places = torch.arange(width, device=device)[None] - (width - lengths)[:, None]
            inputs["attention_mask"] = (places >= 0).long()
            inputs["position_ids"] = places.clamp(min=0)
        with self._lm.tap.open(attention=bool(self._attention)), capture.running():
            hidden = self._lm.anatomy.decoder(**inputs, use_cache=False).last_hidden_state
        for item, g in zip(batch, geometries, strict=True):
            start = g.rows.start
            normed = hidden[g.batch, start : start + g.response]
            entry = work[item.example]
            if item.contrast >= 0:
                entry.contrasts[item.contrast] = normed.clone()
                continue
            if self._compares:
                entry.normed = normed.clone()
            targets = torch.from_numpy(entry.layout.response_ids).to(hidden.device)
            unembedding = self._lm.anatomy.unembedding
            if self._attention:
                collector = collectors[g.batch]
                entry.blind_layers = collector.blind_layers
                entry.values |= self._attention_values(collector, hidden[g.batch], normed)
            if self._lens and unembedding is not None:
                mids = [mid.to(hidden.device) for mid in capture.mids.pop(g.batch)]
                outs = [out.to(hidden.device) for out in capture.outs.pop(g.batch)]
                entry.values |= lens_signals(unembedding, mids, outs, normed, targets, self._lens)
            for name, layer in self._states.items():
                entry.values[name] = capture.states.pop((g.batch, layer)).float()
            if self._output and unembedding is not None:
                entry.values |= output_signals(unembedding, normed, targets, self._output)

    def _attention_values(self, collector: AttentionRows, hidden: Tensor, normed: Tensor) -> dict[str, Tensor]:
        """Put the layers of one example together: (token, layer, head), or (token, passage)."""
        g = collector.geometry
        values: dict[str, Tensor] = {}
        for name, parts in collector.parts.items():
            layers = [part.to(hidden.device) for part in parts]
            if name == "passage_attention":
                values[name] = torch.stack(layers).mean(0)
                continue
            if name == "chunk_context_score":
                similarity = similarity_of(g.chunks, hidden[g.keys], g.prompt)
                values[name] = chunk_scores(layers, similarity, g.chunks).permute(2, 0, 1)
                continue
            if name == "external_context_score":
                exact = torch.float64 if hidden.dtype == torch.float64 else torch.float32
                pieces = [hidden[g.offset + start : g.offset + end] for start, end in g.passages]
                context = torch.cat([*pieces, hidden[:0]]).to(exact)
                layers = context_scores(layers, context, normed.to(exact))
            values[name] = torch.stack(layers).permute(2, 0, 1)
        return values

    def _complete(self, entry: _Work) -> bool:
        read = not self._needs_own_pass or bool(entry.values) or entry.normed is not None
        return read and (not self._contrast or len(entry.contrasts) == len(entry.layout.contrast_prompt_ids))

    @torch.inference_mode()
    def _finish(self, entry: _Work) -> Trace | GroundscopeError:
        layout = entry.layout
        unembedding = self._lm.anatomy.unembedding if self._needs_model else None
        if entry.contrasts and unembedding is not None:
            first = entry.contrasts[0]
            targets = torch.from_numpy(layout.response_ids).to(first.device)
            embeddings = self._lm.input_embeddings().to(first.device)
            norms = self._lm.embedding_norms().to(first.device)
            per_document = [
                contrast_signals(unembedding, entry.normed, other, targets, self._contrast, embeddings, norms)
                for _, other in sorted(entry.contrasts.items())
            ]
            for name in self._contrast:
                entry.values[name] = torch.stack([document[name] for document in per_document]).mean(0)
        arrays: dict[str, FloatArray] = {}
        for name in self._signals:
            if name == "passage_percentage":
                read = layout.prompt_length + np.arange(layout.response_length)
                arrays[name] = (layout.passage_tokens / read).astype(np.float32)
                continue
            if name == "response_chunk":
                arrays[name] = chunk_numbers(chunks_of(layout)).numpy().astype(np.float32)
                continue
            arrays[name] = entry.values[name].cpu().numpy().astype(np.float32, copy=False)
            broken = np.argwhere(~np.isfinite(arrays[name]))
            if len(broken):
                return NonFiniteError(
                    f"{self._lm.name} produced NaN or infinity: signal {name!r}, response token {int(broken[0][0])}. "
                    "Check the weights; if they are float16, load the model with dtype='bfloat16' or 'float32'."
                )
        anatomy = self._lm.anatomy if self._needs_model else None
        layers = () if anatomy is None else anatomy.attention_layers
        return Trace(layout, arrays, self._lm.name, layers, entry.blind_layers)
