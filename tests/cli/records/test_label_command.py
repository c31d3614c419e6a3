"""``groundscope label`` against a real local server."""

import errno
import gzip
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import command_line
import pytest
from judge_server import answer, judge_server, refuses, says, slow

from groundscope.data.jsonl import read_records
from groundscope.example import Example
from groundscope.outputs.runs import partial_path, run_path

RECORDS = [
    {"id": "a", "question": "When?", "context": ["Built in 1889."], "response": "Built in 1887 🎉.", "gold": ["1889"]},
    {"id": "b", "context": "It is tall.", "response": "It is tall.", "note": {"kept": True}, "gold": "tall"},
    {"id": "c", "context": "In Rome.", "response": "In Paris.", "labels": [], "hallucinated": False},
]


def write(path, records=RECORDS):
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return path


def run(*arguments):
    return command_line.run("label", *arguments)


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def find_1887(request):
    material = request["messages"][1]["content"]
    return answer("1887") if "1887" in material else answer("Paris") if "Paris" in material else answer()


@pytest.fixture
def data(tmp_path):
    return write(tmp_path / "data.jsonl")


def judge(server, data, output, *more):
    return run(data, "-o", output, "--judge-url", server.url, "--judge-model", "some-judge", "--retries", 0, *more)


def test_records_are_labelled_in_order_and_keep_what_they_had(data, tmp_path):
    output = tmp_path / "out.jsonl"
    with judge_server(find_1887) as server:
        done = judge(server, data, output, "--price-in", 1, "--price-out", 10)
        assert len(server.requests) == 2
    assert done.exit_code == 0
    assert "2 labelled, 1 of them hallucinated, 1 labels kept, 2 requests, 200 + 40 tokens, cost 0.0006" in done.stderr
    first, second, third = read(output)
    assert first["labels"] == [{"start": 9, "end": 13, "type": ""}] and first["label_reasons"] == {"1887": "no 1887"}
    assert first["labelled_by"]["judge"] == "some-judge" and "url" not in first["labelled_by"]
    assert second["labels"] == [] and second["note"] == {"kept": True} and second["hallucinated"] is False
    assert third == RECORDS[2] | {"question": "", "context": ["In Rome."]}
    assert all(isinstance(record, Example) for record in read_records(output))
    assert not partial_path(output).exists()


def test_a_finished_run_is_not_paid_twice(data, tmp_path):
    output = tmp_path / "out.jsonl"
    with judge_server(find_1887) as server:
        judge(server, data, output)
        again = judge(server, data, output)
        assert len(server.requests) == 2
        assert again.exit_code == 0 and "already complete" in again.stderr and "2 labelled" in again.stderr
        other = judge(server, data, output, "--occurrences", "first")
        assert other.exit_code == 2 and "other settings (occurrences was 'all', is 'first')" in other.stderr
        assert judge(server, data, output, "--relabel", "--overwrite").exit_code == 0
    assert read(output)[2]["labels"] == [{"start": 3, "end": 8, "type": ""}]


def test_the_key_goes_to_the_server_and_nowhere_else(data, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-secret-9")
    with judge_server(find_1887) as server:
        done = judge(server, data, tmp_path / "out.jsonl", "--api-key-env", "SOME_KEY")
        assert server.headers[0]["authorization"] == "Bearer sk-secret-9"
    with judge_server([refuses(401, "wrong key sk-secret-9")]) as server:
        refused = judge(server, data, tmp_path / "other.jsonl", "--api-key-env", "SOME_KEY")
        assert refused.exit_code == 2 and "(401). Check the API key" in refused.stderr
    written = "".join(path.read_text() for path in tmp_path.iterdir() if path.is_file())
    assert "sk-secret" not in written + done.output + refused.output
    missing = run(data, "-o", "x", "--judge-url", "http://h/v1", "--judge-model", "m", "--api-key-env", "NO_SUCH")
    assert missing.exit_code == 2 and "'NO_SUCH', named by --api-key-env, is not set" in missing.stderr


def test_nonsense_costs_one_record_which_can_be_tried_again(data, tmp_path):
    output, again = tmp_path / "out.jsonl", tmp_path / "again.jsonl"

    def nonsense_on_a(request):
        return says("hm") if "1887" in request["messages"][1]["content"] else answer()

    with judge_server(nonsense_on_a) as server:
        done = judge(server, data, output, "--attempts", 2)
        assert len(server.requests) == 3
    assert done.exit_code == 3
    assert "record a: no usable answer in 2 attempts" in done.stderr and "1 labelled" in done.stderr
    assert "1 failed" in done.stderr and "label the output to try them again" in done.stderr
    failed = read(output)[0]
    assert "labels" not in failed and "no usable answer" in failed["labelled_by"]["error"]
    with judge_server(find_1887) as server:
        assert judge(server, output, again).exit_code == 0
        assert len(server.requests) == 1
    assert read(again)[0]["hallucinated"] is True and "error" not in read(again)[0]["labelled_by"]


def test_a_run_that_ends_early_keeps_its_work_for_the_same_judge(tmp_path):
    records = [RECORDS[1] | {"id": str(n), "response": f"It is tall {n}."} for n in range(8)]
    data, output = write(tmp_path / "data.jsonl", records), tmp_path / "out.jsonl"
    with judge_server([*[answer()] * 3, refuses(401)]) as server:
        done = judge(server, data, output, "--concurrency", 1)
        assert done.exit_code == 2 and "(401)" in done.stderr
    assert not output.exists() and len(read(partial_path(output))) == 3
    with partial_path(output).open("a") as stream:
        stream.write('{"id": "half')
    with judge_server([answer()]) as server:
        resumed = run(data, "-o", output, "--judge-url", server.url, "--judge-model", "some-judge", "--concurrency", 1)
        assert resumed.exit_code == 2 and "url was" in resumed.stderr  # another server is another judge


def test_resuming_goes_on_and_counts_everything(tmp_path):
    records = [RECORDS[1] | {"id": str(n), "response": f"It is tall {n}."} for n in range(8)]
    data, output = write(tmp_path / "data.jsonl", records), tmp_path / "out.jsonl"
    with judge_server([answer()]) as server:
        done = judge(server, data, output, "--max-requests", 5)
        assert done.exit_code == 3 and "limit of 5 requests is reached" in done.stderr
        assert len(server.requests) == 5 and not output.exists()
        resumed = judge(server, data, output)
        assert resumed.exit_code == 0 and len(server.requests) == 8
    assert "5 records are labelled already" in resumed.stderr
    assert "8 labelled, 0 of them hallucinated, 8 requests, 800 + 160 tokens" in resumed.stderr
    assert [record["id"] for record in read(output)] == [str(n) for n in range(8)]


def test_the_limit_of_cost_is_kept(tmp_path):
    records = [RECORDS[1] | {"id": str(n)} for n in range(9)]
    data, output = write(tmp_path / "data.jsonl", records), tmp_path / "out.jsonl"
    limits = ("--price-in", 10_000, "--price-out", 0, "--max-cost", 3, "--concurrency", 1)
    with judge_server([answer()]) as server:  # each answer costs 1
        done = judge(server, data, output, *limits)
        assert done.exit_code == 3 and "--max-cost 3 is reached" in done.stderr and len(server.requests) == 3
        judge(server, data, output, *limits)
        assert len(server.requests) == 6
    with judge_server([answer(usage=None)]) as server:
        blind = judge(server, data, tmp_path / "blind.jsonl", *limits)
        assert blind.exit_code == 2 and "--max-cost cannot be kept" in blind.stderr and len(server.requests) == 1
        unlimited = judge(server, data, tmp_path / "unlimited.jsonl")
        assert unlimited.exit_code == 0 and "9 answers came without token counts" in unlimited.stderr


def test_requests_run_side_by_side_and_no_more_than_asked(tmp_path):
    data = write(tmp_path / "data.jsonl", [RECORDS[1] | {"id": str(n)} for n in range(9)])
    with judge_server(lambda request: slow(0.05, answer())) as server:
        assert judge(server, data, tmp_path / "out.jsonl", "--concurrency", 3).exit_code == 0
        assert server.most_running == 3


def test_a_judge_that_always_fails_is_given_up(tmp_path):
    data = write(tmp_path / "data.jsonl", [RECORDS[1] | {"id": str(n)} for n in range(30)])
    with judge_server([refuses(500)]) as server:
        done = judge(server, data, tmp_path / "out.jsonl", "--concurrency", 2)
        assert done.exit_code == 2 and "failed on 10 records in a row" in done.stderr
        assert len(server.requests) <= 12


def test_bad_lines_and_empty_answers_are_reported_and_others_go_on(tmp_path):
    data = tmp_path / "data.jsonl.gz"
    lines = [json.dumps(RECORDS[0]), "{broken", json.dumps(RECORDS[1] | {"response": " "})]
    lines += ['{"id": "n", "context": "c"}', '{"id": "nan", "context": "c", "response": "r", "x": NaN}']
    lines += [json.dumps(RECORDS[1] | {"id": "z"})]
    data.write_bytes(gzip.compress("\n".join(lines).encode()))
    with judge_server(find_1887) as server:
        done = judge(server, data, tmp_path / "out.jsonl")
        assert len(server.requests) == 2
    assert done.exit_code == 3 and "2 labelled" in done.stderr and "1 failed, 3 not readable" in done.stderr
    assert "record b: there is nothing to judge: the response is empty" in done.stderr
    assert [record["id"] for record in read(tmp_path / "out.jsonl")] == ["a", "b", "z"]


@pytest.mark.parametrize(("field", "said"), [("golds", "own fields are 'gold'"), ("question", "one of the fields")])
def test_a_field_without_gold_answers_says_why(tmp_path, field, said):
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps({"id": "a", "question": "q", "context": "c", "response": "r", "gold": "x"}) + "\n")
    done = run(data, "-o", tmp_path / "out.jsonl", "--gold-answers", field)
    assert done.exit_code == 2 and "No record of" in done.stderr and said in done.stderr
    assert list(tmp_path.iterdir()) == [data]


def test_a_disk_that_fills_while_the_output_is_made_is_named(tmp_path, monkeypatch):
    real = Path.replace

    def full(path, target):
        if target == output:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, target)

    data, output = write(tmp_path / "data.jsonl", RECORDS[:2]), tmp_path / "out.jsonl"
    monkeypatch.setattr(Path, "replace", full)
    done = run(data, "-o", output, "--gold-answers", "gold")
    assert done.exit_code == 2 and "out.jsonl' cannot be written: No space left" in " ".join(done.stderr.split())
    assert not output.exists() and partial_path(output).exists()
    monkeypatch.undo()
    assert run(data, "-o", output, "--gold-answers", "gold").exit_code == 0
    assert len(read(output)) == 2


@pytest.mark.parametrize(
    "damage", [{"usage": None}, {"usage": {"x": 1}}, {"fields": 3}, {"outcome": []}, {"fields": None}]
)
def test_a_damaged_record_of_an_earlier_run_is_said(tmp_path, monkeypatch, damage):
    def interrupted(*_):
        raise KeyboardInterrupt

    data, output = write(tmp_path / "data.jsonl", RECORDS[:2]), tmp_path / "out.jsonl"
    monkeypatch.setattr("groundscope.cli.records.label_file.RunWriter.finish", interrupted)
    run(data, "-o", output, "--gold-answers", "gold")
    monkeypatch.undo()
    lines = partial_path(output).read_text(encoding="utf-8").splitlines()
    lines[0] = json.dumps(json.loads(lines[0]) | damage)
    partial_path(output).write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = run(data, "-o", output, "--gold-answers", "gold")
    assert done.exit_code == 2 and "line 1" in done.stderr and not output.exists()


def test_gold_answers_need_no_judge(tmp_path):
    data, output = write(tmp_path / "data.jsonl"), tmp_path / "out.jsonl"
    done = run(data, "-o", output, "--gold-answers", "gold", "--relabel")
    assert done.exit_code == 3 and "record c: The field 'gold' must hold a gold answer" in done.stderr
    first, second, third = read(output)
    assert (first["hallucinated"], first["label_kind"]) == (True, "response") and "labels" not in first
    assert second["hallucinated"] is False and second["labels"] == []
    assert second["labelled_by"] == {"method": "gold answers", "field": "gold", "whole_words": False}
    assert "hallucinated" not in third and "error" in third["labelled_by"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Give either --judge-url"),
        (["--gold-answers", "g", "--judge-url", "http://h"], "Give either --judge-url"),
        (["--judge-url", "http://h"], "go together"),
        (["--judge-url", "ftp://h", "--judge-model", "m"], "must begin with http"),
        (["--gold-answers", "g", "--price-in", "1"], "--price-in and --price-out go together"),
        (["--gold-answers", "g", "--max-cost", "1"], "--max-cost needs --price-in"),
        (["--gold-answers", "g", "--max-cost", "nan"], "--max-cost must be a number"),
    ],
)
def test_wrong_use_is_one_line(data, tmp_path, arguments, message):
    done = run(data, "-o", tmp_path / "out.jsonl", *arguments)
    assert done.exit_code == 2 and message in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out.jsonl").exists() and not run_path(tmp_path / "out.jsonl").exists()


def test_input_and_output_differ(data):
    assert "names the input itself" in run(data, "-o", data, "--gold-answers", "gold").stderr
    assert "Standard input" in run("-", "-o", data.with_name("o"), "--gold-answers", "gold").stderr
    assert "holds no records" in run(write(data, []), "-o", data.with_name("o"), "--gold-answers", "gold").stderr


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done_and_under_way(interruptible, tmp_path):
    data = write(tmp_path / "data.jsonl", [RECORDS[1] | {"id": str(n)} for n in range(40)])
    output = tmp_path / "out.jsonl"
    with judge_server(lambda request: slow(0.2, answer())) as server:
        command = [sys.executable, "-m", "groundscope", "label", data, "-o", output, "--concurrency", "2"]
        command += ["--judge-url", server.url, "--judge-model", "m"]
        process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 30
        while len(server.requests) < 5 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
        asked = len(server.requests)
    assert process.returncode == 130 and "Run the same command again" in errors and "Traceback" not in errors
    assert len(read(partial_path(output))) == asked < 40
