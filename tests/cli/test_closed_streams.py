"""A command started without standard output or input says so; it is neither a verdict nor a fault."""

from __future__ import annotations

import subprocess
import sys

import pytest


def started(command):
    command = f"{sys.executable} -m groundscope {command}"
    return subprocess.run(["sh", "-c", command], check=False, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("command", ["detectors", "--version", "score --passage p --response r --threshold 100"])
def test_closed_output(command):
    done = started(f"{command} >&-")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "Standard output is closed" in done.stderr


@pytest.mark.parametrize("command", ["score --passage - --response r", "score -", "score - -o verdicts.jsonl"])
def test_closed_input(command):
    done = started(f"{command} <&-")
    assert done.returncode == 2 and "which is closed" in done.stderr
