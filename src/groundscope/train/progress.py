"""How far a long reading is: a bar on a terminal, a line a minute anywhere else."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
# Seconds between two lines.
_EVERY = 60.0
_log = logging.getLogger(__name__)


def shown(items: Iterable[Item], total: int, done: int = 0) -> Iterator[Item]:
    """Yield items and show how many of ``total`` have been taken, ``done`` of them before."""
    from tqdm import tqdm

    if sys.stderr.isatty():
        yield from tqdm(items, total=total, initial=done, unit="record", file=sys.stderr)
        return
    start = last = time.monotonic()
    for taken, item in enumerate(items):
        now = time.monotonic()
        if now - last >= _EVERY:
            last = now
            _log.info("%d of %d records, %.1f s each", done + taken, total, (now - start) / max(1, taken))
        yield item
