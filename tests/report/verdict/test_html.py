from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from sample_verdicts import ANSWER, HOSTILE, PASSAGES, RESPONSE, flagged, hostile, judged, not_scored, verdicts

from groundscope.errors import InputError, PrerequisiteError
from groundscope.example import Label
from groundscope.report.safe_text import visible
from groundscope.report.verdict.html import notebook_frame, render_page, write_page
from groundscope.verdict import Span, TokenScore, Verdict

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Elements with their attributes and text; hidden characters are read back from their code."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[dict] = []
        self.elements: list[dict] = []
        self.feed(page)
        self.close()
        assert not self.open, "every element is closed"

    def handle_starttag(self, tag: str, attrs: list) -> None:
        element = {
            "tag": tag,
            "attrs": dict(attrs),
            "text": "",
            "inside": [e["attrs"].get("class") for e in self.open],
        }
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data: str) -> None:
        code = self.open[-1]["attrs"].get("data-code") if self.open else None
        for element in self.open:
            element["text"] += data if code is None else chr(int(code))

    def all(self, tag: str | None = None, css: str | None = None) -> list[dict]:
        return [
            element
            for element in self.elements
            if (tag is None or element["tag"] == tag)
            and (css is None or css in (element["attrs"].get("class") or "").split())
        ]

    def text(self, css: str) -> list[str]:
        return [element["text"] for element in self.all(css=css)]


def test_the_answer_reads_as_given_and_the_span_is_marked() -> None:
    page = Page(render_page([flagged()]))
    assert page.text("answer") == [RESPONSE]
    (span,) = [element for element in page.all(css="span") if "data-span" in element["attrs"]]
    assert span["text"] == "1887"
    assert span["attrs"]["tabindex"] == "0"
    assert span["attrs"]["role"] == "button"
    ids = [element["attrs"]["id"] for element in page.elements if "id" in element["attrs"]]
    assert len(ids) == len(set(ids))
    assert span["attrs"]["aria-describedby"] in ids
    passages = [e["text"] for e in page.all("div", "text") if "passage" in e["inside"]]
    assert passages == list(PASSAGES)


def test_tokens_carry_their_score_and_colour() -> None:
    page = Page(render_page([flagged()]))
    tokens = {
        e["text"]: e["attrs"]
        for e in page.all("span")
        if "text answer" in e["inside"] and "data-span" not in e["attrs"]
    }
    assert tokens["1887"]["class"] == "h10"
    assert tokens["1887"]["title"] == "score 2.5"
    assert tokens["The"]["class"] == "h0"


def test_evidence_is_listed_heaviest_first_and_links_to_its_passage() -> None:
    page = Page(render_page([flagged()]))
    found = [(e["attrs"]["data-passage"], e["attrs"]["data-weight"]) for e in page.all("p", "evidence")]
    assert found == [("0", "0.75"), ("1", "0.25")]
    targets = {e["attrs"].get("id") for e in page.elements}
    links = [e["attrs"]["href"] for e in page.all("a")]
    assert links
    assert all(link.startswith("#") and link[1:] in targets for link in links)


def test_without_context_the_evidence_still_names_its_passage() -> None:
    verdict = Verdict.from_dict(flagged().to_dict(include_context=False))
    page = Page(render_page([verdict]))
    assert [e["text"].split("passage ")[1].strip() for e in page.all("p", "evidence")] == ["1", "2"]
    assert page.all("a") == []


def test_sentences_are_listed_with_probability_flag_reasons_and_nearest_sentence() -> None:
    page = Page(render_page([judged()]))
    rows = [e for e in page.all("li") if "sentences" in e["inside"] and "data-sentence" in e["attrs"]]
    assert [row["attrs"].get("class") for row in rows] == ["flagged", None, "flagged"]
    assert [e["attrs"]["value"] for e in page.all("meter") if "measure" in e["inside"]] == ["0.91", "0.004", "0.72"]
    first, second, third = (" ".join(row["text"].split()) for row in rows)
    assert first.startswith("1 0.91 0.91 The tower was completed in 1887 by Eiffel's company. flagged")
    assert "'1887' stands in no passage text +1.8" in first and "but the words were expected surprise -0.3" in first
    assert first.endswith("compare passage 1 The tower was completed on 31 March 1889.")
    assert "flagged" not in second and "all of its numbers stand in passage 2 text -2.0" in second
    assert "compare" not in third
    assert not [e for e in page.all("details") if "Sentence" in e["text"]], "they are always visible"


def test_the_sentence_to_compare_with_can_be_pointed_at() -> None:
    page = Page(render_page([judged()]))
    links = [e["attrs"]["href"][1:] for e in page.all("a") if "nearest" in e["inside"]]
    targets = [e["attrs"]["id"] for e in page.all("span", "near-start")]
    assert sorted(set(links)) == sorted(targets) and len(links) == 3
    pieces = {e["attrs"]["data-near"]: e["text"] for e in page.all("span", "near")}
    assert pieces == {"0": "The tower was completed on 31 March 1889.", "1": PASSAGES[1]}
    rows = [e["attrs"].get("data-near") for e in page.all("li") if "data-sentence" in e["attrs"]]
    spans = [e["attrs"].get("data-near") for e in page.all("li") if "data-span" in e["attrs"]]
    assert (rows, spans) == (["0", "1", None], ["0", None])
    words = [e for e in page.all("span") if e["attrs"].get("data-sentence") == "1"]
    assert "".join(e["text"] for e in words) == "It is 330 metres tall."


def test_a_judged_answer_shows_probabilities_and_no_raw_scores() -> None:
    page = Page(render_page([judged(), flagged()]))
    judged_one, raw_one = page.text("figure")
    assert judged_one == "0.83 probability of being unsupported, flagged from 0.61"
    assert raw_one == "1.75 score, flagged from 1"
    cells = [e["text"] for e in page.all("td", "num")]
    assert cells == ["0.83", "0.61", "2", "score 1.75", "1", "1"]
    alone = Page(render_page([judged()]))
    text = alone.all("main")[0]["text"]
    assert "2.3" not in text and "-4.1" not in text and "score 2.5" not in text
    assert not [e for e in alone.elements if "score" in (e["attrs"].get("title") or "")]
    facts = " ".join(alone.all("dl")[0]["text"].split())
    assert "responses from probability 0.61, sentences from probability 0.40: held-out sources" in facts
    assert "Profileanswers of RAGTruth" in facts
    assert "".join(alone.text("answer")) == ANSWER


def test_without_context_nothing_points_at_passages() -> None:
    verdict = Verdict.from_dict(judged().to_dict(include_context=False))
    page = Page(render_page([verdict]))
    assert page.all("p", "nearest") == [] and page.all("a") == []
    assert "'1887' stands in no passage" in page.text("sentences")[0]


def test_what_is_not_flagged_is_not_shown_as_proven() -> None:
    source = render_page([judged(score=-2.0, flagged=False, probability=0.1)])
    (badge,) = Page(source).all("span", "badge")
    assert badge["attrs"]["class"] == "badge unflagged" and badge["text"] == "Not flagged"
    assert ".badge.unflagged { color: var(--muted); }" in source
    assert "clean" not in source and "what is not flagged is not proven either" in source
    greens = [
        code
        for code in re.findall(r"#([0-9a-f]{6})\b", source)
        if int(code[2:4], 16) > 1.2 * max(int(code[:2], 16), int(code[4:], 16))
    ]
    assert greens == []


@given(verdicts())
@settings(max_examples=60, deadline=None)
def test_any_answer_reads_exactly_as_given(case: tuple[Verdict, list[Label]]) -> None:
    verdict, labels = case
    page = Page(render_page([verdict], labels=[labels]))
    if verdict.response:
        assert page.text("answer") == [verdict.response]
    if verdict.response:
        assert [e["text"] for e in page.all("div", "text") if "passage" in e["inside"]] == [verdict.response]
    ids = [e["attrs"]["id"] for e in page.elements if "id" in e["attrs"]]
    links = [e["attrs"]["href"][1:] for e in page.all("a")]
    assert len(ids) == len(set(ids)) and set(links) <= set(ids)
    drawn = "".join(e["text"] for e in page.all("span") if "text answer" in e["inside"] and "data-span" in e["attrs"])
    assert all(span.text in drawn for span in verdict.spans)


def test_pieces_of_one_character_are_drawn_once() -> None:
    tokens = tuple(TokenScore(1, 2, "🎉", score) for score in (1.0, 2.0, 6.0))
    page = Page(render_page([flagged(response="a🎉b", tokens=tokens, spans=())]))
    assert page.text("answer") == ["a🎉b"]
    (piece,) = [e for e in page.all("span") if e["text"] == "🎉"]
    assert piece["attrs"]["title"] == "score 1, 2, 6; mean 3 of 3 tokens"


def test_hostile_text_stays_text() -> None:
    source = render_page([hostile(), flagged()], title=HOSTILE, labels={0: [Label(0, 8, HOSTILE)]})
    page = Page(source)
    assert page.text("answer")[0] == HOSTILE
    assert len(page.all("script")) == 1
    assert len(page.all("style")) == 1
    assert page.all("title")[0]["text"] == visible(HOSTILE)
    assert "49" not in page.text("answer")[0]
    assert source == visible(source), "no control character reaches the page"
    assert not [name for e in page.elements for name in e["attrs"] if name.startswith("on") or name in ("src", "style")]


def test_the_page_allows_only_its_own_style_and_script() -> None:
    source = render_page([flagged()])
    page = Page(source)
    (policy,) = [
        e["attrs"]["content"] for e in page.all("meta") if e["attrs"].get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        content = page.all(tag)[0]["text"]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not re.search(r"https?://|@import|url\(", source)


@pytest.mark.parametrize("outcome", ["no_answer", "no_context", "too_long", "failed"])
def test_what_was_not_scored_is_never_shown_as_clean(outcome: str) -> None:
    page = Page(render_page([not_scored(outcome), flagged(outcome="partial", flagged=False)]))
    badges = page.all("span", "badge")
    assert len(badges) == 4
    assert {badge["attrs"]["class"] for badge in badges} == {"badge open"}
    assert badges[0]["text"].startswith("Not scored: ")
    assert "0 flagged, 0 not flagged, 2 not or only partly scored" in " ".join(page.text("counts")[0].split())


def test_unscored_ranges_are_hatched_and_explained() -> None:
    page = Page(render_page([hostile()]))
    hatched = "".join(e["text"] for e in page.all("span", "unscored") if "text answer" in e["inside"])
    assert hatched == HOSTILE[HOSTILE.index("evil") :]


def test_human_labels_are_underlined() -> None:
    verdict = flagged()
    page = Page(render_page([verdict], labels=[[Label(24, 31, "Evident Conflict")]]))
    marked = [e for e in page.all("span", "label") if "text answer" in e["inside"]]
    assert "".join(e["text"] for e in marked) == "in 1887"
    assert "marked by people: Evident Conflict" in marked[0]["attrs"]["title"]
    assert "People marked nothing" in render_page([verdict], labels={0: ()})
    assert "arked by people" not in Page(render_page([verdict])).all("main")[0]["text"]


def test_several_verdicts_get_a_summary() -> None:
    page = Page(render_page([flagged(), not_scored("failed"), flagged(flagged=False, score=-1.0)]))
    rows = page.all("tr")
    assert len(page.all("table", "summary")) == 1
    assert [row["text"].split()[:2] for row in rows if "summary" in row["inside"]][1:] == [
        ["1", "Flagged"],
        ["2", "Not"],
        ["3", "Not"],
    ]
    assert Page(render_page([flagged()])).all("table", "summary") == []
    assert "There are no verdicts" in render_page([])


@pytest.mark.parametrize("labels", [[], [None, None], {1: ()}, {-1: ()}])
def test_labels_must_match_the_verdicts(labels: object) -> None:
    with pytest.raises(InputError, match="verdict"):
        render_page([flagged()], labels=labels)  # type: ignore[arg-type]


def test_a_span_outside_the_response_is_refused() -> None:
    with pytest.raises(InputError, match="outside the response"):
        render_page([flagged(spans=(Span(0, 999, "x", 1.0),))])


def test_the_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    write_page(target, [hostile()], title="First")
    first = target.read_text(encoding="utf-8")
    assert first == render_page([hostile()], title="First")
    with pytest.raises(InputError):
        write_page(target, [flagged()], labels=[])
    assert target.read_text(encoding="utf-8") == first
    blocked = tmp_path / "folder"
    blocked.mkdir()
    with pytest.raises(PrerequisiteError, match=r"cannot be written to .*folder"):
        write_page(blocked, [flagged()])
    with pytest.raises(PrerequisiteError, match="existing folder"):
        write_page(tmp_path / "missing" / "x.html", [flagged()])
    assert {item.name for item in tmp_path.iterdir()} == {"folder", "report.html"}


def test_in_a_notebook_the_page_stands_in_its_own_frame() -> None:
    frame = Page(notebook_frame(hostile()))
    (element,) = frame.elements
    assert element["tag"] == "iframe"
    assert element["attrs"]["sandbox"] == "allow-scripts"
    assert Page(element["attrs"]["srcdoc"]).text("answer") == [HOSTILE]
    assert flagged()._repr_html_() == notebook_frame(flagged())
