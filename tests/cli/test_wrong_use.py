"""Wrong use is refused before a model is loaded: one line on stderr, exit code 2."""

import json

import pytest
from typer.testing import CliRunner

from groundscope.cli.main import app, main
from groundscope.errors import InputError


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.jsonl").write_text(json.dumps({"id": "a", "context": "c", "response": "r"}) + "\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.jsonl").write_text("\n\n")
    (tmp_path / "array.json").write_text('[{"response": "r"}]')
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "there.html").write_text("mine")
    return tmp_path


ONE = ["--passage", "p", "--response", "r"]
CASES = {
    "nothing": ([], "Give a DATA file"),
    "no passage": (["--response", "r"], "at least one --passage"),
    "no response": (["--passage", "p"], "--response"),
    "both kinds of input": (["data.jsonl", "--response", "r"], "Got both"),
    "missing file": (["missing.jsonl"], "No such file"),
    "missing file with output": (["missing.jsonl", "-o", "v.jsonl"], "No such file"),
    "folder as data": (["folder"], "directory"),
    "empty file": (["empty.jsonl"], "holds no records"),
    "empty file with output": (["empty.jsonl", "-o", "v.jsonl"], "holds no records"),
    "array": (["array.json"], "jq -c"),
    "array with output": (["array.json", "-o", "v.jsonl"], "jq -c"),
    "folder as output": (["data.jsonl", "-o", "folder"], "Got the folder"),
    "output nowhere": (["data.jsonl", "-o", "no/v.jsonl"], "does not exist"),
    "output is the input": (["data.jsonl", "-o", "data.jsonl"], "the input itself"),
    "output of unknown origin": (["data.jsonl", "-o", "there.html"], "tells how it was made"),
    "format against extension": (["data.jsonl", "-o", "v.html", "--format", "json"], "does not fit"),
    "html into jsonl": (["data.jsonl", "-o", "v.jsonl", "--format", "html"], "does not fit"),
    "limit on one example": ([*ONE, "--limit", "1"], "--limit"),
    "one example over a file": ([*ONE, "-o", "there.html"], "exists"),
    "stdin twice": (["--passage", "-", "--response", "-"], "one option only"),
    "invalid utf-8": (["--passage", "latin.txt", "--response", "r"], "not valid UTF-8"),
    "forced file missing": (["--passage", "@nowhere", "--response", "r"], "No such file"),
}


@pytest.mark.parametrize("name", CASES)
def test_refused_in_one_line(data, name):
    arguments, message = CASES[name]
    before = sorted(path.name for path in data.rglob("*"))
    done = CliRunner().invoke(app, ["score", *arguments])
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith("groundscope: ") and done.stderr.count("\n") == 1
    assert message in done.stderr
    assert done.stdout == ""
    assert sorted(path.name for path in data.rglob("*")) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["--batch-size", "0"],
        ["--threshold", "high"],
        ["--format", "pdf"],
        ["--dtype", "int8"],
        ["--template", "missing.txt"],
        ["--unknown"],
    ],
)
def test_options_are_checked(data, arguments):
    done = CliRunner().invoke(app, ["score", *ONE, *arguments])
    assert done.exit_code == 2
    assert arguments[0] in done.stderr


def test_debug_shows_the_traceback(data):
    done = CliRunner().invoke(app, ["--debug", "score", "missing.jsonl"])
    assert isinstance(done.exception, InputError)


def test_what_is_not_ours_keeps_its_traceback(data, monkeypatch, capsys):
    def broken(*_):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("groundscope.cli.answers.score.read_argument", broken)
    monkeypatch.setattr("sys.argv", ["groundscope", "score", *ONE])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 70
    assert "ZeroDivisionError: a bug" in capsys.readouterr().err
