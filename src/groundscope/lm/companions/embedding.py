"""Sentence embeddings by the optional sentence-transformers package."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from groundscope.errors import PrerequisiteError

Vectors = npt.NDArray[np.float32]
# Texts whose vectors are kept: the passages of a data set stand in many examples.
_KEPT = 20_000


class Embedder:
    """Turns texts into vectors of unit length; safe to share between threads.

    Args:
        model: A ``sentence_transformers.SentenceTransformer``.
    """

    _loaded: ClassVar[dict[tuple[str, str], Embedder]] = {}
    _loading: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, model: Any) -> None:
        self._model = model
        self._known: OrderedDict[str, Vectors] = OrderedDict()
        self._lock = threading.Lock()

    @classmethod
    def load(cls, name: str, device: str = "cpu") -> Embedder:
        """Return the embedder of a model, loaded once per name and device.

        Args:
            name: A hub id or a folder.
            device: Where it runs.

        Raises:
            PrerequisiteError: If the package or the model cannot be had.
        """
        with cls._loading:
            if (name, device) not in cls._loaded:
                cls._loaded[name, device] = cls(_load(name, device))
            return cls._loaded[name, device]

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return (text, channel) unit vectors; a text that was seen lately is not embedded again."""
        with self._lock:
            new = [text for text in dict.fromkeys(texts) if text not in self._known]
            if new:
                options: dict[str, Any] = {"normalize_embeddings": True, "show_progress_bar": False}
                vectors = np.asarray(self._model.encode(new, convert_to_numpy=True, **options), dtype=np.float32)
                self._known.update(zip(new, vectors, strict=True))
            found = []
            for text in texts:
                self._known.move_to_end(text)
                found.append(self._known[text])
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return np.stack(found)


def _load(name: str, device: str) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as exc:
        raise PrerequisiteError(
            f"The embedding model {name!r} needs sentence-transformers: pip install 'groundscope[embed]'. "
            "Without it, embedder=None compares states of the reading model."
        ) from exc
    from groundscope.lm.loading.hub import why_unreachable

    unreachable = None if Path(name).exists() else why_unreachable()
    try:
        return SentenceTransformer(name, device=device, local_files_only=unreachable is not None)
    except Exception as exc:  # whatever the hub, the file system or torch raise
        reason = f"it is not in the cache of the hub, and {unreachable}." if unreachable else exc
        raise PrerequisiteError(
            f"The embedding model {name!r} could not be loaded: {reason} Pass the folder of a sentence-transformers "
            "model, or embedder=None."
        ) from exc
