"""``groundscope evaluate`` with a real tiny model in a folder."""

from __future__ import annotations

import json

import pytest
from towers import make_examples
from typer.testing import CliRunner

from groundscope.cli.main import app
from groundscope.cli.research.evaluate import named_detectors
from groundscope.errors import InputError, UnknownNameError
from groundscope.report.evaluation.folder import read_results


def run(*arguments):
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments)])


def test_detectors_by_name_and_parameter():
    found = named_detectors(["perplexity", "lumina:weight=0.25"])
    assert list(found) == ["perplexity", "lumina:weight=0.25"]
    assert found["lumina:weight=0.25"].weight == 0.25
    with pytest.raises(InputError, match="given twice"):
        named_detectors(["entropy", "entropy"])
    with pytest.raises(UnknownNameError):
        named_detectors(["perplexitty"])
    with pytest.raises(InputError, match="cannot be made"):
        named_detectors(["lumina:heft=1"])


@pytest.mark.parametrize(
    "wrong",
    [
        ("--objective", "recall"),
        ("--level", "word"),
        ("-d", "nothing"),
        ("--folds", "1"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_read(tmp_path, wrong):
    result = run(tmp_path / "missing.jsonl", "-o", tmp_path / "report", *wrong)
    assert result.exit_code == 2
    assert not (tmp_path / "report").exists()


def test_a_place_that_is_taken(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert run(tmp_path / "missing.jsonl", "-o", tmp_path).exit_code == 2


@pytest.fixture(scope="module")
def place(make_tiny, tmp_path_factory):
    """A model in a folder, labelled records, one of them broken."""
    place = tmp_path_factory.mktemp("evaluate")
    lm = make_tiny(name="tiny")
    lm.model.save_pretrained(place / "tiny")
    lm.tokenizer.save_pretrained(place / "tiny")
    lines = [json.dumps(example.to_dict()) for example in make_examples()]
    (place / "good.jsonl").write_text("\n".join(lines))
    (place / "bad.jsonl").write_text("\n".join([*lines, "{broken"]))
    return place


def test_from_records_to_a_report(place):
    arguments = [place / "good.jsonl", "-o", place / "report", "--model", place / "tiny", "-d", "perplexity"]
    arguments += ["-d", "lookback-lens", "--folds", 3, "--resamples", 50, "--level", "response", "--format", "json"]
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    found = read_results(place / "report")
    assert json.loads(result.stdout) == json.loads((place / "report" / "results.json").read_text())
    assert [(row.name, row.fitting) for row in found.rows[:2]] == [
        ("perplexity", "untrained"),
        ("lookback-lens", "cross-fitted"),
    ]
    assert found.row("lookback-lens").failure is None
    assert found.data["examples"] == 32
    assert (place / "report" / "report.html").exists()
    again = run(*arguments)
    assert again.exit_code == 2 and "--overwrite" in again.stderr


def test_a_broken_line_or_a_row_without_figures_is_told_by_the_exit_code(place):
    arguments = ["--model", place / "tiny", "--folds", 3, "--resamples", 20, "--no-cross-task"]
    result = run(place / "bad.jsonl", "-o", place / "partly", "-d", "perplexity", "--level", "response", *arguments)
    assert result.exit_code == 3
    assert "1 lines not readable (the first: 33" in result.stderr
    assert "response level, AUROC" in result.stdout and "word novelty" in result.stdout
    assert read_results(place / "partly").row("perplexity").failure is None
