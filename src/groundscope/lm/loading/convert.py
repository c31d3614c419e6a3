"""GGUF files: read with transformers, dequantised; or stored once as a folder that loads fast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from groundscope.errors import ModelFetchError
from groundscope.lm.loading.cache import is_disk_full
from groundscope.lm.loading.quiet import quiet_transformers

# Pre-tokenizers that set every digit apart and then split as GPT-2 does. transformers 5 knows none of these
# names and takes GPT-2's splits alone, which cuts the blanks before a digit differently ("\n\n7").
_SPLIT_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"})


def load_gguf(path: str | Path, dtype: Any = None) -> tuple[Any, Any]:
    """Load a GGUF file's model and tokenizer with all weights dequantised, without any network.

    Args:
        path: The ``.gguf`` file.
        dtype: The torch dtype of the weights; float32 if not given.

    Returns:
        The transformers model (in evaluation mode, on the CPU) and its fast tokenizer.

    Raises:
        OSError, ValueError: If the file cannot be read, is no GGUF file, or is of an unknown architecture.
        ImportError: If ``gguf`` or ``accelerate`` is missing.
    """
    import torch
    import transformers

    path = Path(path)
    pre_tokenizer = _pre_tokenizer(path)
    where: dict[str, Any] = {"gguf_file": path.name, "local_files_only": True}
    options: dict[str, Any] = {"dtype": dtype or torch.float32}
    # Releases that can keep weights packed do so when a kernel happens to be installed; hooks and saving
    # need plain weights.
    if hasattr(transformers, "GgufConfig"):
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    with quiet_transformers():
        tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, **where)
        model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, **where, **options)
    if pre_tokenizer in _SPLIT_DIGITS:
        _split_digits(tokenizer)
    return model, tokenizer


def convert_gguf(path: Path, folder: Path) -> None:
    """Write a GGUF file as float32 safetensors, configuration and fast tokenizer into ``folder``.

    Args:
        path: The ``.gguf`` file.
        folder: An existing, empty folder.

    Raises:
        ModelFetchError: If the file cannot be converted; a full disk raises what the library raised.
    """
    try:
        import torch

        loaded, tokenizer = load_gguf(path)
        config = loaded.config
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        # A model that came from GGUF refuses to be saved, although its weights are plain by now: hand them,
        # uncopied, to a fresh one.
        with torch.device("meta"):
            plain = type(loaded)(config)
        plain.load_state_dict(loaded.state_dict(), strict=True, assign=True)
        plain.tie_weights()
        tokenizer.model_max_length = config.max_position_embeddings
        with quiet_transformers():
            plain.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    except Exception as exc:
        if is_disk_full(exc):
            raise
        raise ModelFetchError(
            f"The model file {path.name} could not be converted: {type(exc).__name__}: {exc}. Nothing was "
            "kept. Check that torch, transformers, gguf and accelerate fit groundscope (`pip check`)."
        ) from exc


def _pre_tokenizer(path: Path) -> str | None:
    from gguf import GGUFReader

    field = GGUFReader(path).get_field("tokenizer.ggml.pre")
    return None if field is None else str(field.contents())


def _split_digits(tokenizer: Any) -> None:
    from tokenizers import pre_tokenizers

    digits = pre_tokenizers.Digits(individual_digits=True)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
