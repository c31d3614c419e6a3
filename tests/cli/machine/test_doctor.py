"""``groundscope doctor`` and ``groundscope detectors`` say what is true of this machine and this package."""

import importlib.metadata
import json
import sys

from typer.testing import CliRunner

from groundscope.cli.main import app


def run(*arguments):
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_report_is_about_this_machine():
    report = json.loads(run("doctor", "--format", "json"))
    assert report["versions"]["torch"] == importlib.metadata.version("torch")
    assert report["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert "threads" in report["devices"]["cpu"]
    assert report["memory"]["total"].endswith("GiB") and float(report["memory"]["total"].split()[0]) > 0
    assert "model" not in report
    text = run("doctor")
    for heading in ("versions", "devices", "memory", "cache"):
        assert heading in text.splitlines()


def test_memory_without_psutil(monkeypatch):
    with_psutil = json.loads(run("doctor", "--format", "json"))["memory"]
    monkeypatch.setitem(sys.modules, "psutil", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    without = json.loads(run("doctor", "--format", "json"))["memory"]
    assert without["total"] == with_psutil["total"]


def test_cache_folder_follows_the_variable(monkeypatch, tmp_path):
    monkeypatch.setenv("GROUNDSCOPE_CACHE", str(tmp_path / "cache"))
    cache = json.loads(run("doctor", "--format", "json"))["cache"]
    assert cache["folder"] == str(tmp_path / "cache")
    assert cache["smollm2-135m"].startswith("not ready: ")
    assert not (tmp_path / "cache").exists()


def test_a_model_that_cannot_be_loaded_costs_no_report(tmp_path):
    done = CliRunner().invoke(app, ["doctor", "--model", str(tmp_path), "--format", "json"])
    report = json.loads(done.stdout)
    assert done.exit_code == 2 and report["versions"]["python"] and report["model"]["problem"] in done.stderr


def test_support_of_a_model(embedded_scope):
    report = json.loads(run("doctor", "--model", "smollm2-135m", "--format", "json"))["model"]
    assert report["name"] == "smollm2-135m"
    assert 30 in report.values() and 9 in report.values()  # layers and heads


def test_detectors_are_those_of_the_registry():
    from groundscope.detectors import registry

    listed = json.loads(run("detectors", "--format", "json"))
    assert [item["name"] for item in listed] == sorted(registry.available())
    table = run("detectors")
    for item in listed:
        (line,) = [line for line in table.splitlines() if line.split()[:1] == [item["name"]]]
        assert item["summary"] in line and item["aggregation"] in line
