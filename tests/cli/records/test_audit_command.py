"""``groundscope audit`` and ``groundscope convert``."""

import gzip
import json

import pytest
from command_line import run

from groundscope.data.jsonl import read_records
from groundscope.example import Example

HALUEVAL = {"knowledge": "A.", "question": "Q?", "right_answer": "Yes é", "hallucinated_answer": "No 🎉"}
GOOD = [
    {"id": "a", "source_id": "1", "context": "One context.", "response": "One.", "labels": [], "split": "train"},
    {
        "id": "b",
        "source_id": "2",
        "context": "Another one.",
        "response": "Wrong.",
        "hallucinated": True,
        "split": "test",
    },
]


def write(path, records):
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return path


def test_clean_data_exit_with_0(tmp_path):
    done = run("audit", write(tmp_path / "a.jsonl", GOOD))
    assert done.exit_code == 0 and "no problems" in done.stdout
    assert "2 examples of 2 sources, 2 labelled, 1 hallucinated (50.0 %)" in done.stdout
    assert "by split" in done.stdout and "label kinds: 1 response, 1 span" in done.stdout


def test_problems_exit_with_1_and_are_named(tmp_path):
    leak = GOOD[0] | {"id": "c", "split": "test"}
    outside = GOOD[0] | {"id": "d", "labels": [{"start": 2, "end": 99}]}
    done = run("audit", write(tmp_path / "a.jsonl", [*GOOD, leak, outside]))
    assert done.exit_code == 1
    assert "source in several splits (1)" in done.stdout and "test and train (1)" in done.stdout
    assert "not readable (1)" in done.stdout and "record 4: A label must satisfy" in done.stdout


def test_a_trace_store_is_refused(tmp_path):
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "store.json").write_text("{}")
    done = run("audit", str(tmp_path / "traces"))
    assert done.exit_code == 2 and "is a trace store" in done.stderr


def test_json_is_whole(tmp_path):
    done = run("audit", write(tmp_path / "a.jsonl", [*GOOD, {"id": "x"}]), "--format", "json")
    report = json.loads(done.stdout)
    assert done.exit_code == 1 and report["problems"] == 1 and report["examples"] == 2
    assert report["rates"]["split"]["test"] == {"examples": 1, "labelled": 1, "hallucinated": 1, "rate": 1.0}
    assert set(report["controls"]) == {"response words", "word novelty", "task only", "generator only"}


def test_overlap_with_another_set(tmp_path):
    data, other = write(tmp_path / "a.jsonl", GOOD[:1]), write(tmp_path / "train.jsonl", [GOOD[0] | {"id": "z"}])
    assert run("audit", data).exit_code == 0
    done = run("audit", data, "--against", other)
    assert done.exit_code == 1 and "other set train.jsonl" in done.stdout


def test_other_formats_are_audited_too(tmp_path):
    done = run("audit", write(tmp_path / "qa_data.json", [HALUEVAL]))
    assert "2 examples of 1 sources" in done.stdout


@pytest.mark.parametrize("content", ["", '{"foo": 1}\n', "not json\n"])
def test_what_cannot_be_audited_is_one_line(tmp_path, content):
    path = tmp_path / "a.jsonl"
    path.write_text(content)
    done = run("audit", path)
    assert done.exit_code == 2 and len(done.stderr.splitlines()) == 1 and done.stdout == ""


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
def test_convert_writes_what_every_command_reads(tmp_path, name):
    source = write(tmp_path / "qa_data.json", [HALUEVAL, {"user_query": "q", "chatgpt_response": "r"}])
    output = tmp_path / name
    done = run("convert", source, "-o", output)
    assert done.exit_code == 3 and "2 written, 1 not readable" in done.stderr and "record 2:" in done.stderr
    records = list(read_records(output))
    assert all(isinstance(record, Example) for record in records) and len(records) == 2
    assert records[0].response == "Yes é" and records[1].hallucinated
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([source.name, name])
    if name.endswith(".gz"):
        assert gzip.decompress(output.read_bytes()).count(b"\n") == 2


def test_convert_to_stdout_and_with_a_named_format(tmp_path):
    source = write(tmp_path / "qa_data.json", [HALUEVAL])
    done = run("convert", source, "--from", "halueval")
    assert done.exit_code == 0 and [json.loads(line)["hallucinated"] for line in done.stdout.splitlines()] == [
        False,
        True,
    ]
    wrong = run("convert", source, "--from", "halueva")
    assert wrong.exit_code == 2 and "Did you mean 'halueval'" in wrong.stderr


def test_convert_does_not_overwrite_unasked(tmp_path):
    source, output = write(tmp_path / "qa.json", [HALUEVAL]), write(tmp_path / "out.jsonl", GOOD)
    refused = run("convert", source, "-o", output)
    assert refused.exit_code == 2 and "exists" in refused.stderr and len(list(read_records(output))) == 2
    assert run("convert", source, "-o", output, "--overwrite").exit_code == 0
    assert next(read_records(output)).dataset == "halueval_qa"


def test_convert_leaves_out_what_no_json_can_hold(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"context": "c", "response": "r", "x": NaN}\n{"context": "c", "response": "r", "x": "\\ud800"}\n')
    done = run("convert", path)
    assert done.exit_code == 3 and done.stdout == "" and done.stderr.count("cannot be written as JSON") == 2


def test_a_failed_conversion_leaves_nothing(tmp_path):
    source = tmp_path / "response.jsonl"
    source.write_text(json.dumps({"source_id": 1, "response": "r", "labels": [], "model": "m"}))
    done = run("convert", source, "-o", tmp_path / "out.jsonl")
    assert done.exit_code == 2 and "source_info.jsonl) are missing" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["response.jsonl"]
