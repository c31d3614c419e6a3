"""FILE_OR_TEXT arguments: no character lost, no file read by mistake, clear errors."""

import io
import sys
from pathlib import Path

import pytest

from groundscope.cli.console import note, read_argument
from groundscope.errors import InputError


def test_text_stays_text():
    for text in (
        "",
        "The tower fell.",
        "a\x00b",
        "x" * 100_000,
        "東京は🎉",
        "no/such/file.txt",
        ".",
        "user@host",
    ):
        assert read_argument("--response", text) == text


def test_existing_file_is_read_as_it_is(tmp_path):
    path = tmp_path / "answer.txt"
    path.write_bytes("\ufeffone\r\ntwo 🎉\n".encode())
    assert read_argument("--response", str(path)) == "one\r\ntwo 🎉\n"
    assert read_argument("--response", f"@{path}") == "one\r\ntwo 🎉\n"


@pytest.mark.parametrize(("value", "said"), [
    ("answer.txt", True), ("./folder/answer.MD", True), ("C:\\\\data\\\\x.jsonl", True),
    ("See answer.txt", False), ("Yes.", False), ("1.5", False), ("https://example.org", False),
])  # fmt: skip
def test_text_that_looks_like_a_missing_file_is_said_to_be_text(value, said, capsys):
    assert read_argument("--response", value) == value
    assert ("taken as text" in capsys.readouterr().err) is said


def test_at_sign_insists_on_a_file(tmp_path):
    with pytest.raises(InputError, match=r"--passage cannot be read: No such file.*begins with '@'"):
        read_argument("--passage", f"@{tmp_path / 'missing.txt'}")


def test_invalid_utf8_names_option_file_and_place(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes(b"caf\xe9 au lait")
    with pytest.raises(InputError, match=r"latin.txt', given to --passage, is not valid UTF-8.*byte 3"):
        read_argument("--passage", str(path))


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("überall\n".encode())))
    assert read_argument("--response", "-") == "überall\n"


def test_directory_is_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    assert read_argument("--response", "data") == "data"


def test_note_is_one_line(capsys):
    note("first\n  second")
    assert capsys.readouterr().err == "groundscope: first second\n"
