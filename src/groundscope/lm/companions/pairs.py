"""Classifiers of sentence pairs: does this text support that sentence?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch

from groundscope.errors import InputError, NonFiniteError, PrerequisiteError
from groundscope.lm.loading.hub import why_unreachable
from groundscope.lm.loading.quiet import without_bars
from groundscope.lm.prompt.offsets import encode

# What a model without a declared limit is taken to read; some need two positions for themselves.
_DEFAULT_LIMIT = 512
_OWN_POSITIONS = 2
_LEAST_ROOM = 8


@dataclass(frozen=True, eq=False)
class PairClassifier:
    """A sequence-classification model and its tokenizer.

    Attributes:
        model: The transformers model.
        tokenizer: Its tokenizer.
        label: Number of the class that means support.
        limit: Tokens of a pair that it reads, special ones included.
    """

    model: Any
    tokenizer: Any
    label: int
    limit: int

    @classmethod
    def load(cls, name: str, label: str | int, device: str) -> PairClassifier:
        """Load a classifier: from a folder or the hub's cache on this machine, or failing that from the hub.

        Raises:
            PrerequisiteError: If it cannot be had, or the device is not there.
            InputError: If it is incomplete, or has no class of that name or number.
        """
        try:
            try:
                with without_bars():
                    model, tokenizer, missing = _load(name, local=True)
            except OSError:
                if Path(name).exists():
                    raise
                unreachable = why_unreachable()
                if unreachable is not None:
                    raise PrerequisiteError(
                        f"it is no folder, the cache of the hub lacks it, and {unreachable}."
                    ) from None
                model, tokenizer, missing = _load(name, local=False)
            model = model.to(device).eval()
        except Exception as exc:  # whatever files hold, the libraries that read them raise what they like
            reason = (str(exc).strip().splitlines() or [type(exc).__name__])[0]
            raise PrerequisiteError(
                f"The classifier {name!r} could not be loaded on {device!r}: {reason} Give the folder or hub id of a "
                "sequence-classification model with safetensors weights and its tokenizer."
            ) from exc
        if missing:
            # transformers fills them with random numbers and only warns.
            raise InputError(
                f"The classifier {name!r} is incomplete: {len(missing)} weight(s) are missing, first {missing[0]!r}. "
                "Give a model that was trained to classify pairs of sentences, not a base model."
            )
        found = cls(model, tokenizer, _class_number(name, model.config, label), _limit(model.config, tokenizer))
        if found.room < _LEAST_ROOM:
            raise InputError(f"The classifier {name!r} reads {found.limit} tokens at most, too few for a pair.")
        return found

    @property
    def room(self) -> int:
        """Tokens of a pair beside the special ones."""
        return self.limit - sum(map(len, self._frame()))

    def support(self, sentences: Sequence[str], passages: Sequence[str], batch_size: int) -> list[float]:
        """Return the highest p(support) of each sentence by any part of any passage; 0 without passages.

        Raises:
            NonFiniteError: If a probability is not finite.
        """
        room = self.room
        owners: list[int] = []  # per piece of a sentence, the sentence
        pairs: list[tuple[list[int], list[int], int]] = []
        texts = [self._ids(passage) for passage in passages]
        for number, sentence in enumerate(sentences):
            for piece in windows(self._ids(sentence), room // 2):
                left = room - len(piece)
                pairs += [(part, piece, len(owners)) for text in texts for part in windows(text, left, left // 4)]
                owners.append(number)
        # Pairs of like length together: little padding.
        pairs.sort(key=lambda pair: -len(pair[0]) - len(pair[1]))
        best = np.zeros(len(owners))
        for start in range(0, len(pairs), batch_size):
            batch = pairs[start : start + batch_size]
            np.maximum.at(best, [piece for _, _, piece in batch], self._chances(batch))
        support = np.ones(len(sentences))
        np.minimum.at(support, owners, best)
        return [float(value) for value in support]

    @torch.no_grad()
    def _chances(self, pairs: Sequence[tuple[list[int], list[int], int]]) -> list[float]:
        before, between, after = self._frame()
        rows = [([*before, *first, *between], [*second, *after]) for first, second, _ in pairs]
        width = max(len(first) + len(second) for first, second in rows)
        padding = [width - len(first) - len(second) for first, second in rows]
        pad = self.tokenizer.pad_token_id or 0
        inputs = {
            "input_ids": [[*a, *b, *[pad] * n] for (a, b), n in zip(rows, padding, strict=True)],
            "attention_mask": [[1] * (width - n) + [0] * n for n in padding],
        }
        if "token_type_ids" in self.tokenizer.model_input_names:
            inputs["token_type_ids"] = [
                [0] * len(a) + [1] * len(b) + [0] * n for (a, b), n in zip(rows, padding, strict=True)
            ]
        tensors = {name: torch.tensor(values, device=self.model.device) for name, values in inputs.items()}
        logits = self.model(**tensors).logits.double()  # (pair, class)
        chances = logits[:, 0].sigmoid() if logits.shape[-1] == 1 else logits.softmax(-1)[:, self.label]
        if not bool(torch.isfinite(chances).all()):
            raise NonFiniteError("The classifier of sentence pairs produced NaN or infinity. Check its weights.")
        return [float(value) for value in chances.cpu()]

    def _ids(self, text: str) -> list[int]:
        # Names of special tokens in the text stay text: they must not end the passage.
        return encode(self.tokenizer, text, [(0, len(text))])[0]

    def _frame(self) -> tuple[list[int], list[int], list[int]]:
        """Special tokens before, between and after the two texts of a pair, as the tokenizer sets them."""
        special = set(self.tokenizer.all_special_ids)
        ids = list(self.tokenizer("a", "a", verbose=False)["input_ids"])
        runs = [(kind, list(run)) for kind, run in groupby(ids, key=special.__contains__)]
        plain = [index for index, (kind, _) in enumerate(runs) if not kind]
        before = [number for _, run in runs[: plain[0]] for number in run]
        between = [number for _, run in runs[plain[0] + 1 : plain[-1]] for number in run]
        after = [number for _, run in runs[plain[-1] + 1 :] for number in run]
        return before, between, after


def windows(ids: list[int], size: int, overlap: int = 0) -> list[list[int]]:
    """Cut tokens into parts of at most ``size``, each sharing ``overlap`` tokens, fewer than that, with the last."""
    step = max(1, size - overlap)
    return [ids[start : start + size] for start in range(0, max(1, len(ids) - overlap), step)]


def _load(name: str, *, local: bool) -> tuple[Any, Any, list[str]]:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=local)
    model, report = AutoModelForSequenceClassification.from_pretrained(
        name, local_files_only=local, use_safetensors=True, output_loading_info=True
    )
    return model, tokenizer, sorted(report["missing_keys"])


def _class_number(name: str, config: Any, label: str | int) -> int:
    """Number of the class that means support."""
    labels = {int(number): str(text) for number, text in config.id2label.items()}
    if len(labels) == 1:
        return 0
    if isinstance(label, int):
        if label in labels:
            return label
    else:
        found = [number for number, text in labels.items() if text.casefold() == label.casefold()]
        if len(found) == 1:
            return found[0]
    raise InputError(
        f"The classifier {name!r} has no class {label!r}. Its classes are {labels}; give the name or number of the "
        "one that means support as label=..."
    )


def _limit(config: Any, tokenizer: Any) -> int:
    """Tokens that a classifier reads: what tokenizer and configuration both allow."""
    limits = [int(tokenizer.model_max_length)] if tokenizer.model_max_length < 1e6 else []
    positions = getattr(config, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > _OWN_POSITIONS:
        limits.append(positions - _OWN_POSITIONS)
    return min(limits, default=_DEFAULT_LIMIT)
