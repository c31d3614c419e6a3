"""The example of a plug-in, really installed: the command line knows it, and it passes the common checks."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bench import Bench
from common_checks import CHECKS

from groundscope.errors import InputError

SOURCE = Path(__file__).parents[2] / "examples" / "plugin"
TOWER = "The tower was completed in 1889."


@pytest.fixture(scope="module")
def plugin():
    spec = importlib.util.spec_from_file_location("groundscope_looking_away", SOURCE / "groundscope_looking_away.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # pickle looks the class up by its module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def bench():
    return Bench.make()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("options", [{}, {"enough": 0.5}], ids=["default", "enough"])
def test_common(plugin, check, options, bench):
    check(plugin.LookingAway(**options), bench)


def test_parameters_are_checked(plugin):
    with pytest.raises(InputError, match="'enough' parameter of LookingAway"):
        plugin.LookingAway(enough=2)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Install the package into a folder of its own, beside what is here; returns how to run commands with it."""
    pytest.importorskip("setuptools", minversion="77", reason="the example is built by setuptools")
    place = tmp_path_factory.mktemp("plugin")
    shutil.copytree(SOURCE, place / "source", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    options = [
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--disable-pip-version-check",
        "--target",
        place / "site",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", *options, place / "source"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    paths = os.pathsep.join(filter(None, [str(place / "site"), os.environ.get("PYTHONPATH")]))

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "groundscope", *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": paths},
            cwd=place,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.mark.slow
def test_the_command_line_knows_it(installed):
    done = installed("detectors")
    assert done.returncode == 0 and "looking-away" in done.stdout and "does not go to the passages" in done.stdout
    assert "not usable" not in done.stdout


@pytest.mark.slow
def test_it_scores(installed, make_tiny, tmp_path):
    lm = make_tiny()
    lm.model.save_pretrained(tmp_path)
    lm.tokenizer.save_pretrained(tmp_path)
    done = installed(
        "score", "--passage", TOWER, "--response", "It was completed in 1887.", "--model", tmp_path,
        "--detector", "looking-away:enough=0.9", "--threshold", "2", "--format", "json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["detector"] == "looking-away" and 0.1 <= verdict["score"] <= 1 and not verdict["flagged"]
    wrong = installed("score", "--passage", TOWER, "--response", "In 1887.", "--detector", "looking-away:enough=7")
    assert wrong.returncode == 2 and "must be a float in the range [0, 1]" in wrong.stderr
