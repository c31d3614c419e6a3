"""The help is quick, because nothing heavy is imported for it."""

import subprocess
import sys
import time

import pytest

LOOK = """
import sys
from groundscope.cli.main import main
sys.argv = ["groundscope", *{arguments!r}]
try:
    main()
except SystemExit as exc:
    assert not exc.code, exc.code
heavy = {{"torch", "transformers", "numpy", "pyarrow", "sklearn"}} & set(sys.modules)
assert not heavy, heavy
"""


def run(*arguments):
    done = subprocess.run([sys.executable, *arguments], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["score", "--help"],
        ["detectors", "-h"],
        ["doctor", "--help"],
        ["models", "--help"],
        ["convert", "--help"],
        ["audit", "--help"],
        ["label", "--help"],
        ["validate", "--help"],
        ["analyse", "--help"],
        ["generate", "--help"],
        ["calibrate", "--help"],
    ],
)
def test_nothing_heavy_is_imported(arguments):
    assert "groundscope" in run("-c", LOOK.format(arguments=arguments))


def test_help_takes_less_than_a_second():
    def once():
        start = time.perf_counter()
        run("-m", "groundscope", "--help")
        return time.perf_counter() - start

    assert min(once() for _ in range(4)) < 1.0


def test_score_help_lists_every_exit_code():
    text = " ".join(run("-m", "groundscope", "score", "--help").split())
    for code in ("0: done", "1: flagged", "2: wrong use", "3: a record could not", "130: interrupted"):
        assert code in text
