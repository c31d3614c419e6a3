"""Verdicts on an answer that is still being written."""

from __future__ import annotations

from collections.abc import Callable

from groundscope.mitigate.writing.best_of_n import Judge
from groundscope.mitigate.writing.session import Session
from groundscope.verdict import Verdict

OnDraft = Callable[[Verdict], object]
# Characters between two drafts: a few words. A draft looks at all tokens so far.
_STRIDE = 24


class Drafts:
    """Hands on a verdict whenever some words have come.

    Args:
        judge: Judges what is written so far; ``None`` where that cannot be had.
        on_draft: Whom to tell.
    """

    def __init__(self, judge: Judge | None, on_draft: OnDraft | None) -> None:
        self._judge = judge
        self._on_draft = on_draft
        self._waiting = 0

    def add(self, session: Session, piece: str) -> None:
        """Take the piece that has come."""
        self._waiting += len(piece)
        if self._judge is None or self._on_draft is None or self._waiting < _STRIDE:
            return
        self._waiting = 0
        self._on_draft(self._judge(session, 0))
