"""``groundscope score`` as people run it: whole processes, a terminal, Ctrl-C."""

import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time

import pytest

from groundscope.lm.loading.catalog import DEFAULT_MODEL
from groundscope.lm.loading.embedded import embedded_status
from groundscope.outputs.verdicts import read_verdicts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not embedded_status(DEFAULT_MODEL).cached, reason="needs the embedded model in the cache"),
]

COMMAND = [sys.executable, "-m", "groundscope", "score"]
PASSAGE = "The tower was completed in 1889 by the engineers of the company and stands in Paris. " * 3


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def lines(count):
    records = (
        {"id": f"r{i}", "context": PASSAGE, "response": f"It was completed in {1880 + i}."} for i in range(count)
    )
    return "".join(json.dumps(record) + "\n" for record in records)


def test_one_short_example_prints_the_verdict_and_nothing_else():
    arguments = ["--passage", PASSAGE[:85], "--response", "It was completed in 1887.", "--exit-zero"]
    done = subprocess.run([*COMMAND, *arguments], check=True, capture_output=True, text=True, timeout=300)
    assert "1887" in done.stdout
    assert done.stderr == ""  # neither progress bars nor warnings of the libraries below


def test_reader_that_goes_away_is_not_a_verdict(tmp_path):
    (tmp_path / "data.jsonl").write_text(lines(6))
    command = [*COMMAND, "data.jsonl", "--format", "json", "--batch-size", "1"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert json.loads(process.stdout.readline())["id"] == "r0"
    process.stdout.close()
    assert process.wait(300) == 141
    assert process.stderr.read() == ""
    process.stderr.close()


def test_standard_input():
    done = subprocess.run(
        [*COMMAND, "-", "--format", "json"],
        input=lines(2),
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["r0", "r1"]


def test_standard_input_into_a_resumable_file(tmp_path):
    out = tmp_path / "v.jsonl"
    for message in ("2 scored", "already complete"):
        done = subprocess.run(
            [*COMMAND, "-", "-o", out],
            input=lines(2),
            check=True,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert message in done.stderr
    assert [verdict.id for verdict in read_verdicts(out)] == ["r0", "r1"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_ctrl_c_leaves_records_and_the_same_command_goes_on(interruptible, tmp_path):
    import fcntl
    import pty
    import termios

    count = 16
    (tmp_path / "data.jsonl").write_text(lines(count))
    command = [*COMMAND, "data.jsonl", "-o", "v.jsonl", "--batch-size", "1"]
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 160, 0, 0))
    process = subprocess.Popen(command, cwd=tmp_path, stderr=theirs)
    os.close(theirs)
    chunks = []
    reader = threading.Thread(target=_read_all, args=(ours, chunks))  # a terminal nobody reads would block
    reader.start()
    partial = tmp_path / "v.jsonl.partial"
    deadline = time.monotonic() + 300
    while not (partial.exists() and partial.read_bytes().count(b"\n") >= 2):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    reader.join(10)
    os.close(ours)
    terminal = b"".join(chunks).decode("utf-8", "replace")
    assert "record/s" in terminal and "flagged=" in terminal and f"/{count}" in terminal
    assert "Run the same command again to go on." in terminal and "Traceback" not in terminal
    assert not (tmp_path / "v.jsonl").exists()
    done = [verdict.id for verdict in read_verdicts(partial)]
    assert 2 <= len(done) < count and f"{len(done)} finished records" in terminal

    resumed = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=300)
    assert f"{len(done)} records are done already" in resumed.stderr
    assert "record/s" not in resumed.stderr  # no bar where there is no terminal
    assert [verdict.id for verdict in read_verdicts(tmp_path / "v.jsonl")] == [f"r{i}" for i in range(count)]


def _read_all(descriptor, chunks):
    while True:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # Linux says EIO when the other end is closed
            break
        if not chunk:
            break
        chunks.append(chunk)
