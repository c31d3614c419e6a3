"""What the operating system refuses is told in one line with exit code 2; a fault of ours keeps its traceback."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from groundscope.cli.main import app, main

FULL = Path("/dev/full")
LONG = "x" * 300
ONE = ["score", "--passage", "p", "--response", "r"]


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.jsonl").write_text(json.dumps({"id": "a", "context": "c", "response": "r"}) + "\n")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "digits.json").write_text('{"user": ' + "9" * 5000 + "}")
    return tmp_path


CASES = {
    "long output": (["score", "data.jsonl", "-o", LONG], "name too long"),
    "output whose side files are too long": (["score", "data.jsonl", "-o", "x" * 250], "name too long"),
    "long output of one example": ([*ONE, "-o", LONG], "name too long"),
    "long data": (["score", LONG], "name too long"),
    "long model": ([*ONE, "--model", LONG], LONG),
    "long model for doctor": (["doctor", "--model", LONG], "Unknown model"),
    "model of an unknown user": ([*ONE, "--model", "~nouser_x/y"], "does not exist"),
    "deep template": ([*ONE, "--template", "deep.json"], "not usable JSON"),
    "template with a long number": ([*ONE, "--template", "digits.json"], "not usable JSON"),
}


@pytest.mark.parametrize("name", CASES)
def test_user_faults_are_one_line(data, name):
    arguments, message = CASES[name]
    before = sorted(path.name for path in data.rglob("*"))
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2, (done.output, done.exception)
    assert done.stderr.startswith("groundscope: ") and done.stderr.count("\n") == 1
    assert message in done.stderr
    assert done.stdout == "" or arguments[0] == "doctor"  # whose report is worth having all the same
    assert sorted(path.name for path in data.rglob("*")) == before


@pytest.mark.parametrize("command", [["models"], [*ONE]])
def test_cache_folder_with_a_long_name(monkeypatch, command):
    monkeypatch.setenv("GROUNDSCOPE_CACHE", f"/tmp/{LONG}")
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2
    assert "GROUNDSCOPE_CACHE" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", [["detectors"], ["models"], ["--version"], ["score", "--help"]])
def test_full_standard_output(command):
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "groundscope", *command],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("groundscope: standard output") and done.stderr.count("\n") == 1
    assert os.strerror(errno.ENOSPC) in done.stderr


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (PermissionError(13, "Permission denied", "/some/file"), 2, "groundscope: '/some/file': Permission denied.\n"),
        (OSError("a library's own"), 70, "Traceback"),
        (RecursionError("a bug"), 70, "Traceback"),
    ],
)
def test_only_what_the_system_says_is_one_line(monkeypatch, capsys, error, code, told):
    def broken(*_):
        raise error

    monkeypatch.setattr("groundscope.cli.answers.score.read_argument", broken)
    monkeypatch.setattr("sys.argv", ["groundscope", *ONE])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == code
    assert capsys.readouterr().err.startswith(told)
