"""``groundscope extract`` is killed by the system while it reads; the same command goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from groundscope.errors import InputError
from groundscope.lm.loading.catalog import DEFAULT_MODEL
from groundscope.lm.loading.embedded import embedded_status
from groundscope.trace.storage.store import INDEX, TraceStore, read_index, shards

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL"),
    pytest.mark.skipif(not embedded_status(DEFAULT_MODEL).cached, reason="needs the embedded model in the cache"),
]

# The same sums in every run, whatever else the machine does.
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
SAMPLE = Path(__file__).parents[3] / "examples" / "ragtruth_qa_sample.jsonl"
PLAIN = (sys.executable, "-m", "groundscope")
# The same command, but every record is a shard of its own and not those of five minutes.
EAGER = (
    sys.executable,
    "-c",
    "from groundscope.cli.main import main; from groundscope.trace.storage import store; "
    "store._SHARD_SECONDS = 0.0; main()",
)


def arguments(output):
    return ("extract", SAMPLE, "-o", output, "--detector", "lookback-lens", "--batch-size", "1", "--device", "cpu")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    store = tmp_path_factory.mktemp("whole") / "traces"
    subprocess.run([*PLAIN, *arguments(store)], check=True, capture_output=True, env=ONE_THREAD, timeout=600)
    return TraceStore(store)


@pytest.mark.parametrize("finished", [0, 3], ids=["before the first shard", "after three shards"])
def test_the_same_command_goes_on_and_makes_the_same_store(tmp_path, whole, finished):
    store = tmp_path / "traces"
    process = subprocess.Popen(
        [*EAGER, *arguments(store)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ONE_THREAD
    )
    try:
        deadline = time.monotonic() + 300
        while not ((store / INDEX).exists() and len(shards(store)) >= finished):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.kill()
    assert process.wait(60) == -9
    with pytest.raises(InputError, match="not finished"):
        TraceStore(store)
    left = {path: path.read_bytes() for path in shards(store)}
    assert finished <= len(left) < len(whole)

    done = subprocess.run(
        [*PLAIN, *arguments(store)], check=True, capture_output=True, text=True, env=ONE_THREAD, timeout=600
    )
    assert f"{len(whole)} traces" in done.stderr
    assert {path: path.read_bytes() for path in left} == left  # what was read is not read again
    assert sum(path not in left for path in shards(store)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["traces"]
    assert {path.name for path in store.iterdir()} == {INDEX, *(path.name for path in shards(store))}
    assert read_index(store) == read_index(whole.folder)
    for one, other in zip(TraceStore(store).read(), whole.read(), strict=True):
        assert one.example == other.example
        np.testing.assert_array_equal(one.trace.layout.prompt_ids, other.trace.layout.prompt_ids)
        np.testing.assert_array_equal(one.trace.layout.response_ids, other.trace.layout.response_ids)
        assert set(one.trace) == set(other.trace) == {"lookback_ratio"}
        np.testing.assert_array_equal(one.trace["lookback_ratio"], other.trace["lookback_ratio"])
