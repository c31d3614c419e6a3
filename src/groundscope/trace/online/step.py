"""One step of growing sequences: what a cached pass over the next tokens tells, row by row."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from groundscope.errors import LayoutError, UnsupportedModelError
from groundscope.lm.anatomy.unembedding import Unembedding
from groundscope.lm.prompt.layout import Layout
from groundscope.lm.running import Running
from groundscope.trace.capture import PassCapture
from groundscope.trace.online.rows import Group, StepRows
from groundscope.trace.scratch import Scratch
from groundscope.trace.signals import layer_of, spec_of
from groundscope.trace.signals.attention import RowGeometry
from groundscope.trace.signals.forms import mmd_form
from groundscope.trace.signals.lens import lens_signals
from groundscope.trace.signals.output import contrast_signals, signals_of_logits

if TYPE_CHECKING:
    from groundscope.lm.language_model import LanguageModel

CHOSEN = frozenset({"token_logprob", "token_logprob_contrast", "information_processing_rate_calibrated"})
NORMED, OTHERS = "normed states", "normed states under random documents"
_CALIBRATED, _RATE = "information_processing_rate_calibrated", "information_processing_rate"


class StepReader:
    """Reads prompts and then tokens, and computes the signals of the rows read.

    Args:
        lm: The model that reads.
        layouts: The prompts.
        signals: Names of signals that can be had online.

    Attributes:
        layouts: The prompts.
        prompt_of: Per sequence, the number of its prompt.
        blind_layers: Per sequence, the layers in which the last row sees not all of the passages.
    """

    def __init__(self, lm: LanguageModel, layouts: Sequence[Layout], signals: Sequence[str]) -> None:
        self._lm = lm
        self.layouts = list(layouts)
        self._sources = {name: spec_of(name).source for name in signals}
        self._states = {name: layer for name in signals if (layer := layer_of(name)) is not None}
        self._unembedding = self._checked_model()
        self._attention, self._lens = self._of("attention"), self._of("lens")
        self._contrast, self._output = self._of("contrast"), self._of("output")
        self._forms = frozenset(name for name in self._contrast if mmd_form(name) is not None)
        self._scratch = Scratch()
        self._contexts: list[Tensor] = []
        self.prompt_of = list(range(len(self.layouts)))
        self.blind_layers = [0] * len(self.layouts)
        self.running = Running(lm, [layout.prompt_ids for layout in self.layouts])
        self._others: Running | None = None
        if self._contrast:
            self._documents = self._check_documents()
            self._others = Running(lm, [ids for layout in self.layouts for ids in layout.contrast_prompt_ids])

    def _of(self, source: str) -> frozenset[str]:
        return frozenset(name for name, its_source in self._sources.items() if its_source == source)

    def _checked_model(self) -> Unembedding:
        anatomy = self._lm.anatomy
        for source in ("attention", "lens"):
            if source in self._sources.values():
                anatomy.require(source, self._lm.name)
        anatomy.require("output", self._lm.name)
        if anatomy.unembedding is None:
            raise UnsupportedModelError(f"{self._lm.name} yields no logits that a token could be chosen from.")
        for name, layer in self._states.items():
            if layer >= len(anatomy.layers):
                last = len(anatomy.layers) - 1
                raise UnsupportedModelError(
                    f"{self._lm.name} has the layers 0 to {last}. Got {name!r}; choose one of these."
                )
        return anatomy.unembedding

    def _check_documents(self) -> int:
        counts = {len(layout.contrast_prompt_ids) for layout in self.layouts}
        if len(counts) != 1 or 0 in counts:
            raise LayoutError(
                f"The signals {sorted(self._contrast)} compare with random documents: every prompt needs equally many, "
                f"at least one. Got {sorted(counts)} instead; pass contrasts to Renderer.prompt."
            )
        return counts.pop()

    @property
    def size(self) -> int:
        """Number of sequences."""
        return self.running.size

    def _documents_of(self, sequences: Sequence[int]) -> list[int]:
        return [i * self._documents + d for i in sequences for d in range(self._documents)]

    def fork(self, sequences: Sequence[int]) -> StepReader:
        """Return chosen sequences, which go on independently; this one stays as it is."""
        other = copy.copy(self)
        other._scratch = Scratch()
        other.running = self.running.fork(sequences)
        if self._others is not None:
            other._others = self._others.fork(self._documents_of(sequences))
        other._rename(sequences)
        return other

    def keep(self, sequences: Sequence[int]) -> None:
        """Keep chosen sequences and let the others go."""
        self.running.keep(sequences)
        if self._others is not None:
            self._others.keep(self._documents_of(sequences))
        self._rename(sequences)

    def _rename(self, sequences: Sequence[int]) -> None:
        self.prompt_of = [self.prompt_of[i] for i in sequences]
        self.blind_layers = [self.blind_layers[i] for i in sequences]

    def roll_back(self, count: int) -> None:
        """Forget the last tokens of every sequence."""
        for running in (self.running, self._others):
            if running is not None:
                running.check_roll_back(count)
        for running in (self.running, self._others):
            if running is not None:
                running.roll_back(count)

    def check(self, ids: Tensor) -> None:
        """Refuse (sequence, token) ids that cannot be read next."""
        self.running.check(ids)
        if self._others is not None:
            self._others.check(ids.repeat_interleave(self._documents, dim=0))

    def advance(self, ids: Tensor | None, first: int) -> dict[str, Tensor]:
        """Read the prompts (``None``), or the next tokens; where that fails, nothing has been read.

        Args:
            ids: (sequence, token).
            first: Number of the first row wanted: row 0 predicts token 0. Of the prompts the last row is wanted.

        Returns:
            Per signal, (sequence, row, ...); the normed states besides.
        """
        caches = [running for running in (self.running, self._others) if running is not None]
        saved = [running.saved() for running in caches]
        try:
            return self._advance(ids, first)
        except BaseException:
            for running, state in zip(caches, saved, strict=True):
                running.restore(state)
            raise

    @torch.inference_mode()
    def _advance(self, ids: Tensor | None, first: int) -> dict[str, Tensor]:
        rows = 1 if ids is None else ids.shape[1]
        width = self.running.width if ids is None else rows
        places = [RowGeometry(i, width - rows, 1, rows, (), 1) for i in range(self.size)]
        step = StepRows(
            self._groups(), self._attention, first, rows, self.running.length + width, self._scratch
        )  # fmt: skip
        capture = PassCapture(
            self._lm.anatomy,
            [step] if self._attention else [],
            places if self._lens else [],
            "parametric_knowledge_score" in self._lens,
            self.size,
            (places, tuple(self._states.values())),
        )
        with self._lm.tap.open(attention=bool(self._attention)), capture.running():
            hidden = self.running.read(ids)
        if ids is None and "external_context_score" in self._attention:
            self._contexts = [self._context(i, hidden[i]) for i in range(self.size)]
        normed = hidden[:, -rows:].clone()
        found = {NORMED: normed}
        if self._attention:
            found |= step.finish(normed, self._contexts)
            self.blind_layers = step.blind_layers(self.size)
        found |= self._lens_of(capture, normed)
        for name, layer in self._states.items():
            found[name] = torch.stack([capture.states[i, layer] for i in range(self.size)])
        if self._others is not None:
            found |= self._contrast_of(self._others, ids, normed)
        return found

    def _context(self, number: int, hidden: Tensor) -> Tensor:
        offset = self.running.pads[number]
        pieces = [hidden[offset + start : offset + end] for start, end in self.layouts[number].passages]
        return torch.cat([*pieces, hidden[:0]])

    def _groups(self) -> list[Group]:
        groups = []
        for number in dict.fromkeys(self.prompt_of):
            layout = self.layouts[number]
            sequences = tuple(i for i, other in enumerate(self.prompt_of) if other == number)
            pad = self.running.pads[sequences[0]]
            place = RowGeometry(0, pad, layout.prompt_length, 0, layout.passages, layout.header[0])
            groups.append(Group(place, number, sequences))
        return groups

    @torch.no_grad()
    def logits(self, normed: Tensor) -> Tensor:
        """Return the logits of normed states, rounded as the model rounds those that it draws from."""
        return self._unembedding.own_logits(normed)

    def _lens_of(self, capture: PassCapture, normed: Tensor) -> dict[str, Tensor]:
        wanted = self._lens
        if not wanted:
            return {}
        if _CALIBRATED in wanted:
            # Calibrated by the token that follows, which is not chosen yet.
            wanted = (wanted - {_CALIBRATED}) | {_RATE}
        mids, outs = (
            [torch.cat([parts[i][k].to(normed.device) for i in range(self.size)]) for k in range(len(parts[0]))]
            for parts in (capture.mids, capture.outs)
        )
        flat = normed.flatten(0, 1)
        targets = torch.zeros(len(flat), dtype=torch.long, device=flat.device)
        found = lens_signals(self._unembedding, mids, outs, flat, targets, wanted)
        return {name: values.view(*normed.shape[:2], *values.shape[1:]) for name, values in found.items()}

    def _contrast_of(self, running: Running, ids: Tensor | None, normed: Tensor) -> dict[str, Tensor]:
        repeated = None if ids is None else ids.repeat_interleave(self._documents, dim=0)
        hidden = running.read(repeated)[:, -normed.shape[1] :]
        others = hidden.reshape(self.size, self._documents, *hidden.shape[1:]).transpose(1, 2)
        found = {OTHERS: others.clone()}  # (sequence, row, document, channel)
        if self._forms:
            own = normed.unsqueeze(2).expand_as(others)
            found |= self._compare(own, others, torch.zeros(others.shape[:2], dtype=torch.long), self._forms)
        return found

    def _compare(self, own: Tensor, others: Tensor, ids: Tensor, wanted: frozenset[str]) -> dict[str, Tensor]:
        """Means over the random documents, (sequence, row)."""
        shape = others.shape[:3]
        targets = ids.to(others.device).unsqueeze(-1).expand(shape).flatten()
        embeddings = self._lm.input_embeddings().to(others.device)
        norms = self._lm.embedding_norms().to(others.device)
        found = contrast_signals(
            self._unembedding, own.flatten(0, 2), others.flatten(0, 2), targets, wanted, embeddings, norms
        )  # fmt: skip
        return {name: values.view(shape).mean(-1) for name, values in found.items()}

    def output(self, logits: Tensor) -> dict[str, Tensor]:
        """Signals of the output distribution that need no token, (sequence, row), of logits of that shape."""
        wanted = self._output - CHOSEN
        if not wanted:
            return {}
        flat = logits.flatten(0, 1).clone()
        targets = torch.zeros(len(flat), dtype=torch.long, device=flat.device)
        return {name: v.view(logits.shape[:2]) for name, v in signals_of_logits(flat, targets, wanted).items()}

    @torch.no_grad()
    def chosen(self, ids: Tensor, predicting: dict[str, Tensor], logits: Tensor | None) -> dict[str, Tensor]:
        """Signals of tokens that need their ids, (sequence, token).

        Args:
            ids: (sequence, token).
            predicting: What :meth:`advance` returned for the rows that predict them.
            logits: (sequence, token, vocabulary) of those rows, where they are known.
        """
        out: dict[str, Tensor] = {}
        if "token_logprob_contrast" in self._contrast:
            out |= self._compare(predicting[OTHERS], predicting[OTHERS], ids, frozenset({"token_logprob_contrast"}))
        if "token_logprob" in self._output or _CALIBRATED in self._lens:
            known = self.logits(predicting[NORMED]) if logits is None else logits
            targets = ids.to(known.device).flatten()
            flat = known.flatten(0, 1)
            if "token_logprob" in self._output:
                out |= signals_of_logits(flat, targets, {"token_logprob"})
            if _CALIBRATED in self._lens:
                gap = flat.gather(-1, targets[:, None]).squeeze(-1) - flat.amax(-1)
                out[_CALIBRATED] = predicting[_RATE].flatten() * gap.exp()
        return {name: values.view(ids.shape) for name, values in out.items()}
