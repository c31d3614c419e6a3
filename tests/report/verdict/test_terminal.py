from __future__ import annotations

import io
import re
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from rich.console import Console
from sample_verdicts import HOSTILE, PASSAGES, flagged, hostile, judged, not_scored, verdicts

from groundscope.errors import InputError
from groundscope.example import Label
from groundscope.report.safe_text import visible
from groundscope.report.verdict.terminal import format_verdict, render_console
from groundscope.verdict import Evidence, Span, Verdict

SGR = re.compile(r"\x1b\[[0-9;]*m")


class Stream(io.StringIO):
    def __init__(self, terminal: bool, encoding: str = "utf-8") -> None:
        super().__init__()
        self.terminal = terminal
        self.named = encoding

    def isatty(self) -> bool:
        return self.terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.named


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "COLUMNS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr("sys.stdout", Stream(terminal=False))


def test_everything_a_reader_needs_is_there() -> None:
    text = format_verdict(flagged(), width=200)
    assert text.splitlines()[0].startswith(" FLAGGED   score 1.75 >= threshold 1 (mean of the highest tenth)")
    assert "id q-1 | detector contrast | model smollm2-135m | threshold from a reference sample" in text
    assert "  The tower was completed in ⟦1887⟧ by Eiffel's company.\n" in text
    assert '1. "1887"  score 2.5 at 27-31' in text
    first, second = (line.strip() for line in text.splitlines() if line.strip().startswith("passage"))
    assert first == "passage 1 (75 % of the attention): The tower was completed on 31 March 1889."
    assert second == "passage 2 (25 % of the attention): The tower is 330 metres tall."


def test_a_judged_answer_shows_probabilities_sentences_and_reasons() -> None:
    lines = format_verdict(judged(), width=200).splitlines()
    assert lines[0].startswith(" FLAGGED   unsupported with probability 0.83, flagged from 0.61 (learnt from its sent")
    assert "profile answers of RAGTruth | threshold from held-out sources" in lines[1]
    at = lines.index("Sentences (probability of being unsupported; 2 of 3 flagged, from 0.40)")
    assert lines[at + 1 : at + 4] == [
        "  ! 1.  0.91 The tower was completed in 1887 by Eiffel's company.  ('1887' stands in no passage)",
        "  - 2. <0.01 It is 330 metres tall.  (all of its numbers stand in passage 2)",
        "  ! 3.  0.72 Additionally, it attracts over nine million visitors a year.  (no passage speaks of 'visitors')",
    ]
    at = lines.index("Unsupported spans")
    assert lines[at + 1 : at + 6] == [
        '  1. "1887"  probability 0.91 at 27-31',
        "     because '1887' stands in no passage (+1.8); attention left the passages (+0.8); a random document "
        "explains it as well (+0.4)",
        "     nearest sentence, in passage 1: The tower was completed on 31 March 1889.",
        "     passage 1 (75 % of the attention)",
        "     passage 2 (25 % of the attention)",
    ]
    raw = ("2.3", "-4.1", "1.5", "2.5")
    assert not [number for number in raw if number in "\n".join(lines)], "raw scores stay in the JSON"


def test_many_sentences_do_not_drown_the_terminal() -> None:
    flagged_one, calm, _ = judged().sentences
    text = format_verdict(judged(sentences=(calm,) * 20 + (flagged_one,) + (calm,) * 9), width=400)
    block = text.split("Sentences (")[1].split("\n\n")[0].splitlines()[1:]
    assert len(block) == 2
    assert block[0].startswith("  ! 21. 0.91 The tower was completed")
    assert block[1].startswith("  not flagged: 1: <0.01, 2: <0.01, ") and block[1].count(": <0.01") == 29


def test_sentences_of_a_detector_without_probabilities_have_their_score() -> None:
    whole = flagged().sentences[0]
    parts = (replace(whole, flagged=False), replace(whole, score=None), whole)
    text = format_verdict(flagged(sentences=parts), width=200)
    assert "Sentences (score each; 2 of 3 flagged)" in text
    assert "- 1. -0.5 The tower" in text and "! 2. none The tower" in text
    assert "Sentences" not in format_verdict(flagged()), "one sentence says no more than its answer"


@pytest.mark.parametrize("system", ["standard", "truecolor"])
def test_what_is_not_flagged_is_not_painted_as_proven(system: str) -> None:
    file = io.StringIO()
    calm = judged(
        score=-2.0,
        flagged=False,
        probability=0.1,
        spans=(),
        sentences=tuple(replace(item, flagged=False) for item in judged().sentences),
    )
    Console(file=file, width=120, force_terminal=True, color_system=system).print(render_console(calm))
    text = file.getvalue()
    assert "NOT FLAGGED" in text
    codes = {code for style in SGR.findall(text) for code in style[2:-1].split(";")}
    assert not codes & {"32", "42", "92", "102"}, "no green"
    assert codes <= {"0", "1", "2", "7"}, "no colour at all"


def test_print_of_a_verdict_is_its_report() -> None:
    assert str(flagged()) == format_verdict(flagged())


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ("no_answer", "NO ANSWER"),
        ("no_context", "NO CONTEXT"),
        ("too_long", "TOO LONG"),
        ("failed", "FAILED"),
    ],
)
def test_what_was_not_scored_says_so(outcome: str, words: str) -> None:
    text = format_verdict(not_scored(outcome))
    assert text.splitlines()[0].strip() == f"NOT SCORED: {words}"
    assert "There is nothing to check." in text
    assert "(empty response)" in text


def test_unscored_ranges_are_listed_with_their_reason() -> None:
    text = format_verdict(hostile(), width=2000)
    assert "PARTLY SCORED, NOT FLAGGED" in text
    assert "Not scored\n" in text
    assert visible(" ".join(HOSTILE[HOSTILE.index("evil") :].split()))[:40] in text


def test_human_labels_stand_beside() -> None:
    labels = [Label(24, 31, "Evident Conflict"), Label(27, 34)]
    text = format_verdict(flagged(), labels=labels, width=200)
    block = text.split("Human labels\n")[1]
    assert block.startswith("  The tower was completed ⟦in 1887 by⟧ Eiffel's company.\n")
    assert '- Evident Conflict: "in 1887" at 24-31' in block
    assert '- "1887 by" at 27-34' in block
    assert "people marked nothing" in format_verdict(flagged(), labels=[])
    assert "Human labels" not in format_verdict(flagged())
    with pytest.raises(InputError, match="outside the response"):
        format_verdict(flagged(), labels=[Label(0, 999)])


def test_many_passages_are_cut_to_the_heaviest() -> None:
    span = Span(27, 31, "1887", 2.5, tuple(Evidence(index, 0.2) for index in range(5)))
    text = format_verdict(flagged(spans=(span,), passages=(*PASSAGES, "a", "b", "c")))
    assert text.count("of the attention") == 3
    assert "and 2 more" in text


@pytest.mark.parametrize("color", [True, False])
def test_hostile_text_cannot_drive_the_terminal(color: bool) -> None:
    text = format_verdict(hostile(), color=color, width=100, labels=[Label(0, 3, HOSTILE)])
    bare = SGR.sub("", text)
    assert (bare != text) == color
    assert not [char for char in bare if unicodedata.category(char) == "Cc" and char != "\n"]
    assert "\u202e" not in bare
    assert "[bold red]x[/] :smile:" in bare.replace("\n  ", " ")


@given(verdicts())
def test_the_response_is_shown_whole(case: tuple[Verdict, list[Label]]) -> None:
    verdict, labels = case
    for color in (True, False):
        text = SGR.sub("", format_verdict(verdict, color=color, width=500, labels=labels))
        squeezed = "".join(char for char in text if not char.isspace() and char not in "⟦⟧")
        shown = "".join(char for char in visible(verdict.response) if not char.isspace() and char != "⟦")
        assert shown in squeezed


@pytest.mark.parametrize(
    ("terminal", "environment", "colored"),
    [
        (False, {}, False),
        (True, {}, True),
        (True, {"NO_COLOR": "1"}, False),
        (False, {"FORCE_COLOR": "1"}, True),
        (True, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
        (False, {"FORCE_COLOR": "1", "TERM": "dumb"}, True),
        (True, {"NO_COLOR": ""}, True),
    ],
)
def test_colour_follows_terminal_and_environment(
    terminal: bool, environment: dict[str, str], colored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout", Stream(terminal))
    text = format_verdict(flagged())
    assert ("\x1b[" in text) == colored
    assert ("⟦1887⟧" in text) == (not colored)


def test_marks_fit_the_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Stream(False, "cp1252"))
    assert "in [[1887]] by" in format_verdict(flagged())


def test_a_stronger_score_has_a_stronger_colour() -> None:
    pale = flagged(spans=(Span(27, 31, "1887", 0.6),))
    strong = flagged(spans=(Span(27, 31, "1887", 2.5),))
    style = re.compile(r"(\x1b\[[0-9;]*m)1887")
    assert style.search(format_verdict(pale, color=True))[1] != style.search(format_verdict(strong, color=True))[1]


def test_a_rich_console_decides_for_itself() -> None:
    file = io.StringIO()
    Console(file=file, width=120).print(render_console(flagged()))
    assert "⟦1887⟧" in file.getvalue()
    file = io.StringIO()
    Console(file=file, width=120, force_terminal=True, color_system="truecolor").print(render_console(flagged()))
    assert "⟦" not in file.getvalue()
    assert "\x1b[" in file.getvalue()
