"""Other libraries' progress bars and remarks, silenced for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial


@contextmanager
def without_bars() -> Iterator[None]:
    """Silence transformers' progress bars: files that are on this machine load in a moment."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars
    from transformers.utils import logging

    bars, hub_silent = logging.is_progress_bar_enabled(), are_progress_bars_disabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if bars:
            logging.enable_progress_bar()
        if hub_silent:
            disable_progress_bars()


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' progress bars and remarks for the length of the block."""
    from transformers import modeling_gguf_pytorch_utils as legacy
    from transformers.utils import logging

    verbosity, bar = logging.get_verbosity(), getattr(legacy, "tqdm", None)
    logging.set_verbosity_error()
    if bar is not None:  # this module asks tqdm directly, past transformers' own switch
        legacy.tqdm = partial(bar, disable=True)
    try:
        with without_bars():
            yield
    finally:
        if bar is not None:
            legacy.tqdm = bar
        logging.set_verbosity(verbosity)
