"""The guard in conftest: a test that makes its process too large fails, and no other is blamed for it."""

import subprocess
import sys
from pathlib import Path

import pytest
from memory import GIB, LIMIT, over_limit, peak_bytes

CASES = """
import gc
import numpy as np
import pytest

def test_small():
    pass

@pytest.mark.slow
def test_large_and_slow(tmp_path):
    pass

def test_large():
    np.ones({size})

def test_after():
    pass
"""


def test_only_the_test_that_crosses_the_limit_is_named():
    assert over_limit(1 * GIB, LIMIT) is None and over_limit(LIMIT + 1, 2 * LIMIT) is None
    assert over_limit(2 * GIB, 4 * GIB).startswith("In this test the process came to hold 4.0 GiB, more than the 3.0")
    assert 0 < peak_bytes() < LIMIT


@pytest.mark.slow
def test_a_run_fails_at_the_test_that_is_too_large(tmp_path):
    root = Path(__file__).parent
    (tmp_path / "conftest.py").write_text("from tests_conftest import within_memory\n")
    (tmp_path / "tests_conftest.py").write_text((root / "conftest.py").read_text(encoding="utf-8"))
    (tmp_path / "test_sizes.py").write_text(CASES.replace("{size}", str(LIMIT // 8 + (64 << 20) // 8)))
    options = ["-p", "no:cacheprovider", "-o", "markers=slow", "-o", f"pythonpath={tmp_path} {root} {root / 'helpers'}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--rootdir", tmp_path, *options, tmp_path / "test_sizes.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 1 and "4 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "ERROR test_sizes.py::test_large" in done.stdout
