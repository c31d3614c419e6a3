"""Whether a local model is still the one that it was, without loading it."""

from __future__ import annotations

import hashlib
from pathlib import Path


def local_state(name: str | None) -> str | None:
    """Return a digest of sizes and times of a local model's files; ``None`` for a model that is not local."""
    path = Path(name or "")
    files = sorted(path.iterdir()) if name and path.is_dir() else [path] if path.is_file() else []
    states = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]
    return hashlib.sha256(repr(states).encode()).hexdigest()[:16] if states else None
