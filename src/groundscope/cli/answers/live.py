"""An answer on the terminal while it is written: unsupported spans take colour as soon as they are known."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from groundscope.report.safe_text import visible
from groundscope.report.verdict.terminal import highlighted

if TYPE_CHECKING:
    from groundscope.verdict import Verdict


class PlainStream:
    """Prints the pieces as they come, for pipes and files."""

    def __enter__(self) -> PlainStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        print(end="\n\n" if kind is None else "\n", flush=True)

    def add(self, piece: str) -> None:
        """Print a piece."""
        print(visible(piece), end="", flush=True)

    def draft(self, verdict: Verdict) -> None:
        """What is printed cannot be coloured any more."""


class LiveStream:
    """Draws the answer anew with every piece; it is gone when the answer is finished, and its verdict follows.

    Args:
        console: Where to draw.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True, vertical_overflow="visible")
        self._text = ""
        self._known = Text()
        self._known_length = 0

    def __enter__(self) -> LiveStream:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What was written before an error or Ctrl-C stays on the screen.
        self._live.transient = kind is None
        self._live.stop()

    def add(self, piece: str) -> None:
        """Draw a piece behind the others."""
        self._text += piece
        self._draw()

    def draft(self, verdict: Verdict) -> None:
        """Colour what is known to be unsupported so far."""
        if self._text.startswith(verdict.response):
            self._known = highlighted(verdict, self._console.color_system)
            self._known_length = len(verdict.response)
            self._draw()

    def _draw(self) -> None:
        whole = self._known.copy().append(visible(self._text[self._known_length :]))
        # A screen shows its last lines.
        lines = whole.wrap(self._console, self._console.width)[-max(1, self._console.height - 1) :]
        self._live.update(Text("\n").join(lines), refresh=True)


def stream_to_terminal() -> PlainStream | LiveStream:
    """Return what can show an answer as it is written on standard output."""
    console = Console(file=sys.stdout, emoji=False, markup=False, highlight=False)
    return LiveStream(console) if console.is_terminal and not console.is_dumb_terminal else PlainStream()
