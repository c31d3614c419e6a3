"""A verdict as text: in colour on a terminal, with marks where there is no colour."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from groundscope.example import Label
from groundscope.report.safe_text import visible
from groundscope.report.verdict.excerpts import Excerpts
from groundscope.report.verdict.passages import NearestSentences
from groundscope.report.verdict.scale import Scale
from groundscope.report.verdict.segments import Segment, cut_response
from groundscope.report.verdict.wording import (
    comparison,
    excerpt,
    explanation,
    headline,
    percent,
    probability,
    sentence_score,
    span_score,
)
from groundscope.verdict import Verdict

# What is not flagged is not proven: no colour praises it.
_BADGES = {"flagged": "bold white on red", "unflagged": "reverse", "open": "bold black on yellow"}
_SPAN_STYLES = ("black on #ffe9a8", "black on #ffc66e", "black on #ff9a5c", "bold white on #c8372d")
_SPAN_STYLES_16 = ("black on yellow", "black on yellow", "white on red", "bold white on red")
_UNSCORED_STYLE = "dim italic strike"
_LABEL_STYLE = "underline bold bright_blue"
_LONGEST_SPAN = 100
_MOST_EVIDENCE = 3
_MOST_REASONS = 3
# Of longer answers only the flagged sentences have lines of their own.
_MOST_SENTENCES = 10


def format_verdict(
    verdict: Verdict,
    *,
    color: bool | None = None,
    width: int | None = None,
    labels: Sequence[Label] | None = None,
) -> str:
    """Return a verdict as text for a terminal or a log.

    The text of response and passages is shown as it is, except for control characters, which are named: it
    cannot drive the terminal. Without colour, spans stand between brackets.

    Args:
        verdict: What to show.
        color: Whether to use ANSI colours. By default they are used if standard output is a terminal or
            FORCE_COLOR is set, and never if NO_COLOR is set.
        width: Columns; by default those of the terminal.
        labels: What people marked in the response; drawn below it. An empty sequence says that they marked
            nothing.

    Raises:
        InputError: If a label lies outside the response.
    """
    use_color = _wants_color() if color is None else color
    console = Console(
        file=io.StringIO(),
        force_terminal=use_color,
        color_system=_color_system() if use_color else None,
        no_color=not use_color,
        width=width,
        legacy_windows=False,
        emoji=False,
        markup=False,
        highlight=False,
    )
    with console.capture() as capture:
        console.print(_View(verdict, labels, getattr(sys.stdout, "encoding", None)), end="")
    return "\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n"))


def render_console(verdict: Verdict, *, labels: Sequence[Label] | None = None) -> RenderableType:
    """Return a verdict for ``rich.console.Console.print``; see :func:`format_verdict`."""
    return _View(verdict, labels)


def highlighted(verdict: Verdict, color_system: str | None) -> Text:
    """Return the response alone, its unsupported spans in colour.

    Args:
        verdict: On the response, or on what there is of it.
        color_system: As ``rich.console.Console.color_system`` names it.
    """
    return _highlighted(verdict, cut_response(verdict, ()), ("", ""), _styles(color_system))


class _View:
    """Draws a verdict for whatever console it is printed on; ``encoding`` overrides the console's own."""

    def __init__(self, verdict: Verdict, labels: Sequence[Label] | None, encoding: str | None = None) -> None:
        self.verdict = verdict
        self.labels = labels
        self.encoding = encoding
        self.segments = cut_response(verdict, labels or ())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        plain = console.no_color or console.color_system is None
        marks = _marks(self.encoding or options.encoding) if plain else ("", "")
        styles = _styles(console.color_system)
        yield from self._head()
        yield ""
        yield _indented(self._response(marks, styles))
        if self.labels is not None:
            yield from self._human_labels(marks)
        if len(self.verdict.sentences) > 1 or any(item.probability is not None for item in self.verdict.sentences):
            yield from _title(f"Sentences ({_counted(self.verdict)})")
            yield from self._sentences()
        if self.verdict.spans:
            yield from _title("Unsupported spans")
            yield from self._spans()
        if self.verdict.unscored:
            yield from _title("Not scored")
            yield from self._unscored()

    def _head(self) -> Iterator[Text]:
        verdict = self.verdict
        summary = headline(verdict)
        line = Text.assemble((f" {summary.text.upper()} ", _BADGES[summary.kind]), "  ")
        if verdict.score is not None:
            line.append(f"{comparison(verdict)} ({visible(verdict.aggregation)})")
        yield line
        facts = [f"detector {verdict.detector}", f"model {verdict.model}"]
        if verdict.id is not None:
            facts.insert(0, f"id {verdict.id}")
        if verdict.profile:
            facts.append(f"profile {verdict.profile}")
        if verdict.threshold is not None:
            facts.append(f"threshold from {verdict.threshold.source}")
        yield Text(visible(" | ".join(facts)), style="dim")
        if verdict.question:
            yield Text(visible(f"question: {excerpt(verdict.question, _LONGEST_SPAN)}"), style="dim")
        if verdict.message:
            yield Text(visible(verdict.message), style="yellow")

    def _response(self, marks: tuple[str, str], styles: Sequence[str]) -> Text:
        if not self.verdict.response:
            return Text("(empty response)", style="dim")
        return _highlighted(self.verdict, self.segments, marks, styles)

    def _human_labels(self, marks: tuple[str, str]) -> Iterator[RenderableType]:
        yield from _title("Human labels")
        if not self.labels:
            yield _indented(Text("people marked nothing in this response", style="dim"))
            return
        groups = [True if segment.labels else None for segment in self.segments]
        yield _indented(_draw(self.segments, groups, lambda segment: _LABEL_STYLE if segment.labels else "", marks))
        for label in self.labels:
            text = visible(excerpt(self.verdict.response[label.start : label.end], _LONGEST_SPAN))
            kind = f"{visible(label.type)}: " if label.type else ""
            yield _indented(Text(f'- {kind}"{text}" at {label.start}-{label.end}', style="dim"))

    def _sentences(self) -> Iterator[RenderableType]:
        sentences = self.verdict.sentences
        short = len(sentences) <= _MOST_SENTENCES
        lines = Table.grid(padding=(0, 1))
        lines.add_column(no_wrap=True)
        lines.add_column(justify="right", no_wrap=True)
        lines.add_column(justify="right", no_wrap=True)
        lines.add_column()
        others = []
        for index, item in enumerate(sentences, start=1):
            if not (short or item.flagged):
                others.append(f"{index}: {sentence_score(item)}")
                continue
            style = "bold red" if item.flagged else ""
            said = Text(visible(excerpt(item.text, _LONGEST_SPAN)))
            for reason in explanation(item.reasons, item.flagged, 1):
                said.append(f"  ({visible(excerpt(reason.text, _LONGEST_SPAN))})", style="dim")
            mark = "!" if item.flagged else "?" if item.score is None else "-"
            lines.add_row(Text(mark, style), Text(f"{index}."), Text(sentence_score(item), style), said)
        if lines.row_count:
            yield _indented(lines)
        if others:
            yield _indented(Text(f"not flagged: {', '.join(others)}", style="dim"))

    def _spans(self) -> Iterator[RenderableType]:
        excerpts = Excerpts(self.verdict)
        nearest = NearestSentences(self.verdict)
        for index, span in enumerate(self.verdict.spans, start=1):
            line = Text(f"{index}. ")
            line.append(f'"{visible(excerpt(span.text, _LONGEST_SPAN))}"', style="bold")
            line.append(f"  {span_score(span, self.verdict)} at {span.start}-{span.end}")
            yield _indented(line)
            why = explanation(span.reasons, True, _MOST_REASONS)
            if why:
                said = "; ".join(f"{visible(reason.text)} ({reason.weight:+.1f})" for reason in why)
                yield _indented(Text(f"because {said}"), by=5)
            if near := nearest.text(span.nearest):
                line = Text(f"nearest sentence, in passage {span.nearest.passage + 1 if span.nearest else 0}: ")
                yield _indented(line.append(visible(near), style="dim"), by=5)
            evidence = sorted(span.evidence, key=lambda item: -item.weight)
            for item in evidence[:_MOST_EVIDENCE]:
                shown = "" if near else visible(excerpts.find(span, item.passage))
                line = Text(f"passage {item.passage + 1} ({percent(item.weight)} of the attention)")
                yield _indented(line.append(f": {shown}", style="dim") if shown else line, by=5)
            if len(evidence) > _MOST_EVIDENCE:
                yield _indented(Text(f"and {len(evidence) - _MOST_EVIDENCE} more", style="dim"), by=5)

    def _unscored(self) -> Iterator[RenderableType]:
        for item in self.verdict.unscored:
            text = visible(excerpt(self.verdict.response[item.start : item.end], _LONGEST_SPAN))
            yield _indented(Text(f'- "{text}" at {item.start}-{item.end}: {visible(item.reason)}'))


def _counted(verdict: Verdict) -> str:
    """How many sentences are flagged, and what their numbers are."""
    flagged = sum(item.flagged for item in verdict.sentences)
    said = f"{flagged} of {len(verdict.sentences)} flagged"
    if not any(item.probability is not None for item in verdict.sentences):
        return f"score each; {said}"
    line = None if verdict.threshold is None else verdict.threshold.sentence_probability
    return f"probability of being unsupported; {said}" + ("" if line is None else f", from {probability(line)}")


def _styles(color_system: str | None) -> Sequence[str]:
    return _SPAN_STYLES_16 if color_system in ("standard", "windows") else _SPAN_STYLES


def _highlighted(verdict: Verdict, segments: Sequence[Segment], marks: tuple[str, str], styles: Sequence[str]) -> Text:
    scale = Scale.of(verdict)

    def style(segment: Segment) -> str:
        if segment.span is not None:
            level = scale.level(verdict.spans[segment.span].score)
            return styles[min(3, max(0, int((level - 0.5) * 8)))]
        return _UNSCORED_STYLE if segment.unscored is not None else ""

    return _draw(segments, [segment.span for segment in segments], style, marks)


def _draw(
    segments: Sequence[Segment],
    groups: Sequence[object],
    style: Callable[[Segment], str],
    marks: tuple[str, str],
) -> Text:
    """Join segments; a run of segments of one group stands between the marks (``None`` is no group)."""
    drawn = Text()
    last: object = None
    for segment, group in zip(segments, groups, strict=True):
        if group != last:
            drawn.append((marks[1] if last is not None else "") + (marks[0] if group is not None else ""))
        drawn.append(visible(segment.text), style=style(segment))
        last = group
    if last is not None:
        drawn.append(marks[1])
    return drawn


def _title(text: str) -> tuple[RenderableType, RenderableType]:
    return "", Text(text, style="bold")


def _indented(text: RenderableType, by: int = 2) -> Padding:
    return Padding(text, (0, 0, 0, by))


def _marks(encoding: str) -> tuple[str, str]:
    try:
        "⟦⟧".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return "[[", "]]"
    return "⟦", "⟧"


def _wants_color() -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _color_system() -> Literal["standard", "256", "truecolor"]:
    """Guess the colours of the terminal that will show the text; rich guesses for its own file only."""
    if os.environ.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit"):
        return "truecolor"
    return "256" if "256color" in os.environ.get("TERM", "") else "standard"
