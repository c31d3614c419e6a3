"""Folders that cannot be made or written are refused before a model is loaded: there is none here."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from labelled import make_examples
from typer.testing import CliRunner

from groundscope.cli.main import app

COMMANDS = {
    "extract": ("extract", "data.jsonl", "--detector", "perplexity"),
    "train": ("train", "lookback-lens", "--train", "data.jsonl"),
    "evaluate": ("evaluate", "data.jsonl", "-d", "perplexity"),
    "analyse": ("analyse", "data.jsonl"),
    "calibrate": ("calibrate", "data.jsonl", "--max-false-alarm", "0.5"),
}
NO_MODEL = "./no-such-model"
ROOT = pytest.mark.skipif(
    getattr(os, "geteuid", lambda: 0)() == 0,
    reason="the administrator may write everywhere, and Windows asks otherwise",
)
PLACES = {
    "a file": ("file", "file"),
    "below a file": ("file/out", "is no folder"),
    "deep below a file": ("file/more/out", "is no folder"),
    "a long name": ("x" * 250, "name too long"),
    "in a folder that is read-only": pytest.param("closed/out", "no permission to write", marks=ROOT),
    "a folder that is read-only": pytest.param("closed", "no permission to write", marks=ROOT),
}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(item.to_dict()) + "\n" for item in make_examples(24)))
    (tmp_path / "file").write_text("mine")
    (tmp_path / "closed").mkdir(mode=0o500)
    yield tmp_path
    (tmp_path / "closed").chmod(0o700)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("output", "message"), PLACES.values(), ids=PLACES)
def test_refused_before_anything_is_read(place, command, output, message):
    before = sorted(place.rglob("*"))
    done = CliRunner().invoke(app, [*COMMANDS[command], "-o", output, "--model", NO_MODEL])
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith("groundscope: ") and done.stderr.count("\n") == 1 and done.stdout == ""
    assert repr(output) in done.stderr and message in done.stderr and NO_MODEL not in done.stderr
    assert sorted(place.rglob("*")) == before and (place / "file").read_text() == "mine"


INTO_A_FILE = {
    "score": ("score", "--model", NO_MODEL, "--overwrite"),
    "validate": ("validate", "--model", NO_MODEL, "--overwrite"),
    "convert": ("convert", "--overwrite"),
    "label": ("label", "--gold-answers", "--overwrite"),
}


@pytest.mark.parametrize("command", INTO_A_FILE)
@pytest.mark.parametrize("output", ["data.jsonl", "./data.jsonl", "soft.jsonl", "hard.jsonl"])
def test_no_command_writes_over_what_it_reads(place, command, output):
    (place / "soft.jsonl").symlink_to("data.jsonl")
    (place / "hard.jsonl").hardlink_to(place / "data.jsonl")
    before = (place / "data.jsonl").read_bytes()
    name, *options = INTO_A_FILE[command]
    done = CliRunner().invoke(app, [name, "data.jsonl", *options, "-o", output])
    assert done.exit_code == 2 and f"-o names the input itself ({str(Path(output))!r})" in done.stderr
    assert (place / "data.jsonl").read_bytes() == before and (place / "soft.jsonl").is_symlink()


EVERY = {
    "score": ("score", "data.jsonl"),
    "score one": ("score", "--passage", "p", "--response", "r"),
    "validate": ("validate", "data.jsonl"),
    "convert": ("convert", "data.jsonl"),
    "label": ("label", "data.jsonl", "--gold-answers", "gold"),
    "train": COMMANDS["train"],
    "transfer": ("transfer", "probe", "--data", "data.jsonl", "--to", NO_MODEL),
    "import-probe": ("import-probe", "data.jsonl"),
    **COMMANDS,
}


@pytest.mark.parametrize("command", EVERY)
@pytest.mark.parametrize("output", ["", " "])
def test_no_name_is_refused(place, command, output):
    before = sorted(place.rglob("*"))
    done = CliRunner().invoke(app, [*EVERY[command], "-o", output, "--overwrite"])
    assert (done.exit_code, done.stderr) == (2, f"groundscope: -o needs a name. Got {output!r}.\n")
    assert sorted(place.rglob("*")) == before


OTHER_NAMES = {
    "score": ("score", "x.jsonl.gz", "promises a gzip file"),
    "score one": ("score one", "x.csv", "promises CSV"),
    "convert": ("convert", "x.json", "promises one JSON document, which is not written here. End the name in .jsonl"),
    "convert, packed": ("convert", "x.json.gz", "'x.json' promises one JSON document"),
    "label": ("label", "x.json", "promises one JSON document"),
    "validate": ("validate", "x.jsonl", "promises JSON Lines, which is not written here. End the name in .json"),
    "extract": ("extract", "x.jsonl", "promises JSON Lines, and a folder is written here"),
    "evaluate": ("evaluate", "report.html", "promises an HTML page, and a folder is written here"),
    "train": ("train", "x.json", "and a folder is written here"),
    "analyse": ("analyse", "analysis.md", "promises Markdown, and a folder is written here"),
}


@pytest.mark.parametrize(("command", "output", "message"), OTHER_NAMES.values(), ids=OTHER_NAMES)
def test_a_name_that_promises_something_else_is_refused(place, command, output, message):
    before = sorted(place.rglob("*"))
    done = CliRunner().invoke(app, [*EVERY[command], "-o", output])
    assert done.exit_code == 2 and message in done.stderr and done.stderr.count("\n") == 1, done.output
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize(("form", "output"), [("text", "x.json"), ("text", "x.jsonl"), ("json", "x.html")])
def test_a_format_that_does_not_fit_the_name_is_refused(place, form, output):
    done = CliRunner().invoke(app, [*EVERY["score"], "-o", output, "--format", form])
    assert done.exit_code == 2 and f"--format {form} does not fit -o {output}" in done.stderr


def test_an_analysis_is_replaced_only_if_asked(place):
    (place / "out").mkdir()
    (place / "out" / "analysis.json").write_text("{}")
    command = [*COMMANDS["analyse"], "-o", "out", "--model", NO_MODEL]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2 and "holds an analysis already. Pass --overwrite" in done.stderr
    done = CliRunner().invoke(app, [*command, "--overwrite"])
    assert done.exit_code == 2 and NO_MODEL in done.stderr
    assert (place / "out" / "analysis.json").read_text() == "{}"


def test_a_folder_is_not_converted_onto_one_of_its_files(place):
    done = CliRunner().invoke(app, ["convert", ".", "-o", "data.jsonl", "--overwrite"])
    assert done.exit_code == 2 and "names the input itself" in done.stderr


def test_a_file_that_is_read_along_is_not_written_over(place):
    (place / "response.jsonl").write_text('{"id": "1", "source_id": "s", "response": "r", "labels": [], "model": "m"}')
    (place / "source_info.jsonl").write_text('{"source_id": "s", "task_type": "QA", "source_info": {}}')
    done = CliRunner().invoke(app, ["convert", "response.jsonl", "-o", "source_info.jsonl", "--overwrite"])
    assert done.exit_code == 2 and "names the input itself" in done.stderr


def test_results_of_a_validation_are_not_overwritten_unasked(place):
    done = CliRunner().invoke(app, ["validate", "data.jsonl", "-o", "file", "--model", NO_MODEL])
    assert done.exit_code == 2 and "--overwrite" in done.stderr and (place / "file").read_text() == "mine"


def test_what_is_no_part_of_a_report_is_not_thrown_away_with_it(place):
    (place / "out").mkdir()
    for name in ("results.json", "notes.txt"):
        (place / "out" / name).write_text("{}")
    done = CliRunner().invoke(app, [*COMMANDS["evaluate"], "-o", "out", "--overwrite", "--model", NO_MODEL])
    assert done.exit_code == 2 and "'notes.txt'" in done.stderr and (place / "out" / "notes.txt").exists()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("output", ["out", "more/folders/out", "empty"])
def test_other_places_get_as_far_as_the_model(place, command, output):
    (place / "empty").mkdir()
    done = CliRunner().invoke(app, [*COMMANDS[command], "-o", output, "--model", NO_MODEL])
    assert done.exit_code == 2 and NO_MODEL in done.stderr
