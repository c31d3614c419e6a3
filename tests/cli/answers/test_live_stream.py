"""What ``groundscope generate`` shows while an answer is written."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import groundscope as gs
from groundscope.cli.answers.live import LiveStream, PlainStream
from groundscope.verdict import Verdict

TEXT = "The tower was completed in 1889.\nBees make honey, and \x1b[31mtowers."


@pytest.fixture(scope="module")
def drafts(tiny) -> list[Verdict]:
    """Verdicts on growing parts of a text, everything in them flagged."""
    scope = gs.Scope(tiny, "perplexity", threshold=-1.0, span_threshold=-1.0)
    return [scope.score("When?", ["In 1889."], TEXT[:length]) for length in (20, 45)]


def console(width: int = 40, height: int = 10) -> Console:
    return Console(
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        width=width,
        height=height,
        legacy_windows=False,
    )


def test_spans_take_colour_when_they_are_known_and_nothing_drives_the_terminal(drafts):
    screen = console()
    with LiveStream(screen) as stream:
        stream.add(TEXT[:25])
        before = screen.file.getvalue()
        stream.draft(drafts[0])
        coloured = screen.file.getvalue()[len(before) :]
        stream.add(TEXT[25:])
        stream.draft(drafts[1])
    assert drafts[0].spans and ";48;2;" not in before and ";48;2;" in coloured
    assert "\x1b[31m" not in screen.file.getvalue() and "\\x1b[31mtowers." in screen.file.getvalue()


def test_a_draft_of_another_text_is_not_drawn(drafts):
    screen = console()
    with LiveStream(screen) as stream:
        stream.add("Something else")
        stream.draft(drafts[0])
    assert ";48;2;" not in screen.file.getvalue()


def test_a_long_answer_shows_its_end():
    screen = console(width=20, height=4)
    with LiveStream(screen) as stream:
        stream.add(" ".join(f"word{number}" for number in range(60)))
    last = screen.file.getvalue()
    assert "word59" in last and "word30" not in last


def test_what_was_written_stays_after_an_interruption():
    screen, fine = console(), console()
    with pytest.raises(KeyboardInterrupt), LiveStream(screen) as stream:
        stream.add("half an answer")
        raise KeyboardInterrupt
    with LiveStream(fine) as stream:
        stream.add("half an answer")
    erase = "\x1b[2K"
    assert screen.file.getvalue().count(erase) < fine.file.getvalue().count(erase)


def test_pipes_get_the_pieces_alone(capsys, drafts):
    with PlainStream() as stream:
        for piece in ("The ", "tower\x1b[31m"):
            stream.add(piece)
        stream.draft(drafts[0])
    assert capsys.readouterr().out == "The tower\\x1b[31m\n\n"
