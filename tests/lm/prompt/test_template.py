import dataclasses
import json

import pytest

from groundscope.errors import InputError
from groundscope.lm.prompt.template import Piece, PromptTemplate


def joined(pieces):
    return "".join(piece.text for piece in pieces)


def test_pieces_join_to_the_users_turn():
    template = PromptTemplate(user="A {passages} B {question} C", separator=" / ")
    pieces = template.pieces("Why?", ["one", "two"])
    assert joined(pieces) == "A one / two B Why? C"
    assert pieces == [
        Piece("instruction", "A "),
        Piece("passage", "one", 0),
        Piece("instruction", " / "),
        Piece("passage", "two", 1),
        Piece("instruction", " B "),
        Piece("question", "Why?"),
        Piece("instruction", " C"),
    ]


def test_what_only_looks_like_a_placeholder_is_told(tmp_path, caplog):
    path = tmp_path / "template.txt"
    path.write_text("{passages} {bogus} {0} {question} {bogus}")
    assert "{bogus}" in PromptTemplate.from_file(path).user
    assert [record.getMessage().split(" holds ")[1].split(",")[0] for record in caplog.records] == ["{bogus}", "{0}"]
    caplog.clear()
    path.write_text("{passages} { x } {question}")
    assert PromptTemplate.from_file(path) and not caplog.records


def test_placeholders_in_the_example_are_text():
    pieces = PromptTemplate().pieces("{passages}?", ["{question}", "{{ messages }}"])
    assert [(piece.kind, piece.text) for piece in pieces if piece.kind != "instruction"] == [
        ("passage", "{question}"),
        ("passage", "{{ messages }}"),
        ("question", "{passages}?"),
    ]


def test_empty_passages_keep_the_numbers_of_the_others():
    pieces = PromptTemplate(separator="|").pieces("Why?", ["", "two", "", "four"])
    assert [(piece.text, piece.index) for piece in pieces if piece.kind == "passage"] == [("two", 1), ("four", 3)]
    assert "|two||four" in joined(pieces)


@pytest.mark.parametrize("question", ["", "  ", "\n\t"])
def test_without_a_question_the_other_template_is_used(question):
    template = PromptTemplate(user="Q {question} {passages}", user_without_question="S {passages}")
    assert joined(template.pieces(question, ["p"])) == "S p"
    assert joined(template.pieces("Why?", ["p"])) == "Q Why? p"


def test_a_template_may_leave_the_question_out():
    assert joined(PromptTemplate(user="Only {passages}").pieces("Why?", ["p"])) == "Only p"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"user": "no placeholder {question}"}, r"'user'.*\{passages\} 1 time\(s\)\. Got it 0 time"),
        ({"user": "{passages}{passages}"}, r"'user'.*Got it 2 time"),
        ({"user": "{passages}{question}{question}"}, r"'user'.*\{question\} 0 to 1 time\(s\)\. Got it 2"),
        ({"user_without_question": "{passages}{question}"}, r"'user_without_question'.*\{question\} 0 time"),
        ({"user": 7}, r"'user' must be a string. Got int"),
        ({"user": None}, r"'user' must be a string. Got NoneType"),
        ({"separator": 5}, r"'separator' must be a string. Got int"),
        ({"plain_header": None}, r"'plain_header' must be a string. Got NoneType"),
        ({"system": ["a"]}, r"'system' must be a string. Got list"),
        ({"separator": "\ud800"}, r"'separator' is not valid Unicode"),
    ],
)
def test_what_is_no_template_is_refused(fields, message):
    with pytest.raises(InputError, match=message):
        PromptTemplate(**fields)


def test_a_text_file_is_the_users_turn(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("Lies genau:\n{passages}\n\nFrage: {question} – Antwort?\n", encoding="utf-8")
    template = PromptTemplate.from_file(path)
    assert template.user == "Lies genau:\n{passages}\n\nFrage: {question} – Antwort?"
    assert template.user_without_question == "Lies genau:\n{passages}\n\nFrage:  – Antwort?"
    assert template.system is None
    assert PromptTemplate.from_file(str(path)) == template


def test_editors_marks_are_not_part_of_the_turn(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_bytes(b"\xef\xbb\xbfText: {passages}\r\n{question}\r\n\r\n")
    assert PromptTemplate.from_file(path).user == "Text: {passages}\n{question}"
    path = tmp_path / "mine.JSON"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps({"user": "{passages}\n"}).encode())
    assert PromptTemplate.from_file(path).user == "{passages}\n"


def test_a_json_file_holds_the_fields(tmp_path):
    path = tmp_path / "mine.json"
    values = {"user": "{passages} {question}", "separator": " || ", "system": "Be brief.", "plain_header": "\n>"}
    path.write_text(json.dumps(values), encoding="utf-8")
    assert PromptTemplate.from_file(path) == PromptTemplate(**values)
    path.write_text(json.dumps(dataclasses.asdict(PromptTemplate())), encoding="utf-8")
    assert PromptTemplate.from_file(path) == PromptTemplate()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.json", b"{", "is not JSON"),
        ("t.json", b"[1]", "must be a JSON object with fields among"),
        ("t.json", b'{"users": "x"}', "must be a JSON object with fields among.*'user_without_question'"),
        ("t.json", b'{"user": "x"}', r"no template\. The 'user'.*Got it 0 time"),
        ("t.json", b'{"separator": 3}', r"no template\. The field 'separator' must be a string"),
        ("t.txt", b"nothing here", r"no template\. The 'user'.*Got it 0 time"),
        ("t.txt", b"", r"no template"),
        ("t.txt", b"\xff\xfe{passages}", "cannot be read"),
    ],
)
def test_a_bad_file_is_refused_with_its_name(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        PromptTemplate.from_file(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_or_a_folder_is_refused(tmp_path):
    for path in (tmp_path / "absent.txt", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            PromptTemplate.from_file(path)


def test_the_fingerprint_changes_with_every_field():
    changed = [
        PromptTemplate(),
        PromptTemplate(user="{passages}"),
        PromptTemplate(user_without_question="{passages}"),
        PromptTemplate(separator="\n"),
        PromptTemplate(system=""),
        PromptTemplate(system="Be brief."),
        PromptTemplate(plain_header=""),
    ]
    prints = [template.fingerprint() for template in changed]
    assert len(set(prints)) == len(prints)
    assert PromptTemplate().fingerprint() == prints[0]
    assert all(len(value) == 16 and int(value, 16) >= 0 for value in prints)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"user": ' + "9" * 5000 + "}"], ids=["too deep", "too many digits"])
def test_json_beyond_what_python_reads_is_refused(tmp_path, text):
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"t\.json is not usable JSON"):
        PromptTemplate.from_file(path)
