"""DATA that can be read only once gives the same verdicts as a file, and nothing lost passes for done."""

import json
import os
import threading

import pytest

from groundscope.cli.answers import score_file

TEXTS = ["The tower was completed in 1889.", "The river is 777 km long.", "Bees see ultraviolet light."]


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"id": f"r{i}", "context": text, "response": text[:15]}) for i, text in enumerate(TEXTS)]
    path = tmp_path / "data.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def pipes(data):
    """Make paths that yield the data once: a named pipe, an open descriptor."""
    writers = []

    def make(kind):
        if kind == "fifo":
            os.mkfifo("pipe")
            writers.append(threading.Thread(target=lambda: data.with_name("pipe").write_bytes(data.read_bytes())))
            writers[-1].start()
            return "pipe"
        ours, theirs = os.pipe()
        os.write(theirs, data.read_bytes())
        os.close(theirs)
        return f"/dev/fd/{ours}"

    yield make
    for writer in writers:
        writer.join(10)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fifo", "descriptor"])
def test_a_pipe_to_stdout_is_scored_as_the_file_is(groundscope, data, pipes, kind):
    whole = groundscope("score", data, "--format", "json")
    piped = groundscope("score", pipes(kind), "--format", "json")
    assert piped.exit_code == 0 and "3 scored" in piped.stderr
    assert piped.stdout == whole.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fifo", "descriptor"])
def test_a_pipe_into_a_file_is_scored_as_the_file_is(groundscope, data, pipes, kind):
    assert groundscope("score", data, "-o", "whole.jsonl").exit_code == 0
    piped = groundscope("score", pipes(kind), "-o", "piped.jsonl")
    assert piped.exit_code == 0 and "3 scored" in piped.stderr
    assert data.with_name("piped.jsonl").read_bytes() == data.with_name("whole.jsonl").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 2])
@pytest.mark.parametrize("target", [[], ["-o", "v.jsonl"]])
def test_records_lost_while_reading_are_never_complete(groundscope, data, monkeypatch, left, target):
    def shrinking(path):
        total = count(path)
        lines = data.read_text().splitlines(keepends=True)
        data.write_text("".join(lines[:left]))
        return total

    count = score_file.count_lines
    monkeypatch.setattr(score_file, "count_lines", shrinking)
    done = groundscope("score", data, *target)
    assert done.exit_code == 2
    assert f"{left} of 3 records" in done.stderr
    assert not data.with_name("v.jsonl").exists()


def test_a_device_without_records(groundscope):
    done = groundscope("score", "/dev/null")
    assert done.exit_code == 2 and "holds no records" in done.stderr
