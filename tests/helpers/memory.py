"""What a test process holds: several of them run side by side on small machines."""

from __future__ import annotations

import resource
import sys

GIB = 1 << 30
LIMIT = 3 * GIB


def peak_bytes() -> int:
    """Largest resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def over_limit(before: int, after: int, limit: int = LIMIT) -> str | None:
    """What to say of a test during which the peak rose so; only the one that crosses the limit is to blame."""
    if before > limit or after <= limit:
        return None
    return (
        f"In this test the process came to hold {after / GIB:.1f} GiB, more than the {limit / GIB:.1f} GiB that a "
        f"worker may have; it was {before / GIB:.1f} GiB before. Free models, or let the test take smaller ones."
    )
