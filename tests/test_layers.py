"""The import rule of pyproject.toml holds, and a breach of any kind is found, also a hidden one; tests mirror src."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RUN = "from importlinter.cli import lint_imports_command; lint_imports_command()"
ROOMS, CIRCLES = "The rooms of the package", "No circle"


def lint(root):
    pytest.importorskip("importlinter", reason="import-linter needs Python 3.11")
    return subprocess.run(
        [sys.executable, "-c", RUN, "--no-cache"],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src"), "COLUMNS": "200"},
    )


def folders(root, *, without=()):
    found = {
        file.parent.relative_to(root) for file in root.rglob("*.py") if file.name not in ("__init__.py", "conftest.py")
    }
    return {folder.as_posix() for folder in found if not folder.parts or folder.parts[0] not in without}


def test_every_source_folder_has_its_test_folder():
    source = folders(ROOT / "src" / "groundscope")
    tests = folders(ROOT / "tests", without=("helpers", "reference"))
    assert source == tests


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def add(copy, module, text):
    file = copy / "src" / "groundscope" / module
    file.parent.mkdir(exist_ok=True)
    file.write_text((file.read_text(encoding="utf-8") if file.exists() else "") + text, encoding="utf-8")


def test_the_package_keeps_every_contract():
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broken" in done.stdout


@pytest.mark.parametrize(
    ("module", "text", "contract"),
    [
        pytest.param(
            "text/words.py",
            "\n\ndef hidden():\n    from groundscope.scope import Scope\n\n    return Scope\n",
            ROOMS,
            id="upwards, in a function",
        ),
        pytest.param(
            "errors.py",
            "\n\nif TYPE_CHECKING:\n    from groundscope.example import Example\n",
            ROOMS,
            id="upwards, for types",
        ),
        pytest.param(
            "analyse/context.py",
            "\n\ndef hidden():\n    import groundscope.analyse.robustness as above\n\n    return above\n",
            CIRCLES,
            id="a circle in a function, inside one room",
        ),
        pytest.param("newroom/__init__.py", '"""A room without a place."""\n', ROOMS, id="a new room without a place"),
    ],
)
def test_a_breach_fails(copy, module, text, contract):
    add(copy, module, text)
    done = lint(copy)
    assert done.returncode != 0
    broken = [line for line in done.stdout.splitlines() if " BROKEN" in line]
    assert any(line.startswith(contract) for line in broken), done.stdout + done.stderr
