"""The model that reads: a transformers causal language model and its tokenizer."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor, nn

from groundscope.doors import open_door
from groundscope.errors import InputError, PrerequisiteError
from groundscope.lm.anatomy.blocks import Anatomy, inspect_model
from groundscope.lm.anatomy.interface import AttentionTap
from groundscope.lm.loading.catalog import find_embedded, is_embedded
from groundscope.lm.prompt.layout import Layout
from groundscope.lm.prompt.render import Renderer
from groundscope.lm.prompt.template import PromptTemplate

if TYPE_CHECKING:
    from groundscope.trace.trace import Trace

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


class LanguageModel:
    """A causal language model that reads prompts and responses.

    The wrapped model is left as it is: hooks are set for the time of a pass only.

    Args:
        model: A loaded transformers causal language model.
        tokenizer: Its tokenizer; needed to lay out text, not to trace layouts made from ids.
        name: How the model is called in verdicts and fingerprints.

    Attributes:
        model: The transformers model, as given.
        tokenizer: The tokenizer, as given.
        name: The model's name.
    """

    def __init__(self, model: nn.Module, tokenizer: Any = None, *, name: str | None = None) -> None:
        if not isinstance(model, nn.Module) or not hasattr(model, "get_output_embeddings"):
            raise InputError(
                "The 'model' parameter of LanguageModel must be a loaded transformers model. "
                f"Got {type(model).__name__} instead; to load by name use LanguageModel.from_pretrained."
            )
        if tokenizer is not None and not hasattr(tokenizer, "get_vocab"):
            raise InputError(
                "The 'tokenizer' parameter of LanguageModel must be a transformers tokenizer or None. "
                f"Got {type(tokenizer).__name__} instead."
            )
        self.model = model
        self.tokenizer = tokenizer
        self.name = name or str(getattr(model, "name_or_path", "") or type(model).__name__)
        self.tap = AttentionTap(model)
        self._anatomy: Anatomy | None = None
        self._embedding_norms: Tensor | None = None
        self._lock = threading.Lock()

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path = "smollm2-135m",
        *,
        dtype: str | torch.dtype | None = None,
        device: str | torch.device | None = None,
        trust_remote_code: bool = False,
    ) -> LanguageModel:
        """Load a model.

        Args:
            name_or_path: The embedded default ``smollm2-135m``, a hub id, a folder, or a ``.gguf`` file.
            dtype: ``float32``, ``bfloat16``, ``float16`` or ``float64``; by default what the weights are
                stored in on a GPU and float32 on a CPU.
            device: ``cpu``, ``cuda``, ``cuda:1``, ``mps``; by default a GPU if there is one.
            trust_remote_code: Run code that comes with the model. Off unless you ask.

        Raises:
            InputError: If name, dtype or device are not understood.
            PrerequisiteError: If the files cannot be had.
        """
        from groundscope.lm.loading.by_name import load

        check_source(name_or_path)
        resolved_device = _device(device)
        resolved_dtype = _dtype(dtype, resolved_device)
        model, tokenizer = load(str(name_or_path), resolved_dtype, trust_remote_code)
        name = find_embedded(str(name_or_path)).name if is_embedded(str(name_or_path)) else str(name_or_path)
        return cls(model.to(resolved_device), tokenizer, name=name)

    @property
    def device(self) -> torch.device:
        """Where the model's first weights are; inputs go there."""
        return next(self.model.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the model's first weights."""
        return next(self.model.parameters()).dtype

    @property
    def anatomy(self) -> Anatomy:
        """What the model offers, found by one short pass on first use."""
        with self._lock:
            if self._anatomy is None:
                self._anatomy = inspect_model(self.model, self.tap)
            return self._anatomy

    @property
    def max_length(self) -> int | None:
        """Tokens that the model can read, or ``None`` if its configuration does not say."""
        config = self.model.config
        text: Any = config.get_text_config() if hasattr(config, "get_text_config") else config  # type: ignore[operator]
        for field in ("max_position_embeddings", "n_positions", "max_sequence_length"):
            value = getattr(text, field, None)
            if isinstance(value, int) and value > 0:
                return value
        return None

    def renderer(self, template: PromptTemplate | None = None) -> Renderer:
        """Return what lays out examples for this model.

        Raises:
            InputError: If there is no tokenizer.
        """
        if self.tokenizer is None:
            raise InputError(
                f"{self.name} was wrapped without a tokenizer, so text cannot be laid out. "
                "Pass LanguageModel(model, tokenizer), or build layouts with Layout.from_ids."
            )
        return Renderer(self.tokenizer, template or PromptTemplate(), self.max_length)

    @overload
    def trace(self, layouts: Layout, signals: Sequence[str], **options: Any) -> Trace: ...

    @overload
    def trace(self, layouts: Iterable[Layout], signals: Sequence[str], **options: Any) -> list[Trace]: ...

    def trace(self, layouts: Layout | Iterable[Layout], signals: Sequence[str], **options: Any) -> Trace | list[Trace]:
        """Read responses and return the requested signals.

        Args:
            layouts: One layout or several.
            signals: Names from :data:`groundscope.trace.signals.SIGNALS`.
            **options: ``batch_size`` and ``padding_side``, see :func:`groundscope.trace.engine.trace_layouts`.

        Raises:
            InputError: If layouts, signals or an option are of the wrong type.
            UnknownNameError: If a signal is not known.
            UnsupportedModelError: If the model cannot yield one of them.
            LayoutError: If a layout lacks what a signal needs, or is too long.
            NonFiniteError: If the model produces NaN or infinity.
        """
        traces: Trace | list[Trace] = open_door("LanguageModel.trace")(self, layouts, signals, **options)
        return traces

    def input_embeddings(self) -> Tensor:
        """Return the (vocabulary, channel) input embedding matrix."""
        weight: Tensor = self.model.get_input_embeddings().weight  # type: ignore[operator]
        return weight.detach()

    def embedding_norms(self) -> Tensor:
        """Return the norms of the input embeddings, (vocabulary,), at least 1e-8, float32 (or float64)."""
        with self._lock:
            if self._embedding_norms is None:
                weight = self.input_embeddings()
                dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
                self._embedding_norms = torch.linalg.vector_norm(weight, dim=-1, dtype=dtype).clamp_(min=1e-8)
            return self._embedding_norms

    def fingerprint(self, template: PromptTemplate | None = None) -> dict[str, Any]:
        """Return what a saved detector must agree with: model, weights, tokenizer, template, heads."""
        anatomy = self.anatomy
        tokenizer = ""
        if self.tokenizer is not None:
            vocabulary = sorted(self.tokenizer.get_vocab().items())
            parts = (type(self.tokenizer).__name__, self.tokenizer.chat_template, vocabulary)
            tokenizer = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
        return {
            "model": self.name,
            "architecture": type(self.model).__name__,
            "weights": self._weights_digest(),
            "layers": len(anatomy.layers),
            "attention_layers": list(anatomy.attention_layers),
            "heads": anatomy.heads,
            "tokenizer": tokenizer,
            "template": (template or PromptTemplate()).fingerprint(),
        }

    def _weights_digest(self) -> str:
        """Hash of names, shapes and a few values of the weights; the same in float32 and bfloat16."""
        parameters = list(self.model.named_parameters())
        digest = hashlib.sha256()
        for name, parameter in parameters:
            digest.update(f"{name} {tuple(parameter.shape)}\n".encode())
        for _, parameter in parameters[:: max(1, len(parameters) // 16)]:
            flat = parameter.detach().flatten()
            values = flat[:: max(1, len(flat) // 16)][:16].to(torch.bfloat16).float().cpu()
            digest.update(values.numpy().tobytes())
        return digest.hexdigest()[:16]

    def support(self) -> dict[str, Any]:
        """Return what the model can yield, and why not where it cannot."""
        anatomy = self.anatomy
        return {
            "architecture": type(self.model).__name__,
            "layers": len(anatomy.layers),
            "heads": anatomy.heads,
            "attention_layers": list(anatomy.attention_layers),
            "context": self.max_length,
            "attention_signals": "attention" not in anatomy.problems,
            "lens_signals": "lens" not in anatomy.problems,
            "output_signals": "output" not in anatomy.problems,
            "parallel_residual": bool(anatomy.mids) and all(mid.reader is None for mid in anatomy.mids),
            "fast_tokenizer": bool(getattr(self.tokenizer, "is_fast", False)),
            "problems": dict(anatomy.problems),
        }


def check_source(name_or_path: object) -> None:
    """Refuse what cannot name a model: anything but a string or a path."""
    if not isinstance(name_or_path, (str, Path)):
        raise InputError(
            "The model must be named by a string or a path: 'smollm2-135m', a hub id, a folder or a .gguf file. "
            f"Got {name_or_path!r} instead."
        )


def _device(device: str | torch.device | None) -> torch.device:
    if device is None:
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps") if torch.backends.mps.is_available() else torch.device("cpu")
    try:
        resolved = torch.device(device)
    except (RuntimeError, TypeError) as exc:
        raise InputError(
            f"The device must be one like 'cpu', 'cuda', 'cuda:1' or 'mps'. Got {device!r} instead."
        ) from exc
    if resolved.type == "cuda" and not torch.cuda.is_available():
        raise PrerequisiteError("The device 'cuda' was asked for, but torch sees no GPU here. Use device='cpu'.")
    if resolved.type == "mps" and not torch.backends.mps.is_available():
        raise PrerequisiteError("The device 'mps' was asked for, but torch sees none here. Use device='cpu'.")
    if resolved.type not in ("cpu", "cuda", "mps", "xpu"):
        raise InputError(f"The device must be one like 'cpu', 'cuda', 'cuda:1' or 'mps'. Got {device!r} instead.")
    return resolved


def _dtype(dtype: str | torch.dtype | None, device: torch.device) -> torch.dtype | str:
    if dtype is None or dtype == "auto":
        return torch.float32 if device.type == "cpu" else "auto"
    if isinstance(dtype, torch.dtype) and dtype in _DTYPES.values():
        return dtype
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise InputError(f"The dtype must be one of {', '.join(_DTYPES)} or auto. Got {dtype!r} instead.")
    return _DTYPES[dtype]
