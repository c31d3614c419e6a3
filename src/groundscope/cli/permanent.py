"""Objects that stay until the process ends, kept out of Python's search for cyclic garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def permanent() -> Iterator[None]:
    """Treat what is made within as there to stay.

    Importing torch and transformers makes some 370,000 containers, next to none of which is ever garbage. Python looks
    through them again and again while they come, once more soon after, and at exit: a quarter of the time that a short
    command takes. For commands only: what becomes cyclic garbage of these objects is never freed.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
