"""``groundscope score`` on the embedded model."""

import gzip
import json

import pytest

from groundscope.outputs.verdicts import read_verdicts
from groundscope.verdict import Verdict

PASSAGE = "The tower was completed in 1889 by the engineers of the company and stands in Paris."
ONE = (
    "--question",
    "When was it completed?",
    "--passage",
    PASSAGE,
    "--response",
    "It was completed in 1887.",
)
RECORDS = [
    {"id": "a", "question": "When?", "context": PASSAGE, "response": "It was completed in 1889."},
    {
        "id": "b",
        "question": "Where?",
        "context": [PASSAGE, "Rome is old."],
        "response": "It stands in Berlin.",
    },
    {"id": "東", "context": "東京は日本の首都です。", "response": "首都は東京🎉です。"},
    {"id": "empty", "question": "When?", "context": PASSAGE, "response": "  "},
    {"question": "Who?", "context": PASSAGE, "response": "Engineers built it, and a king paid for it."},
    {"id": "f", "question": "Why?", "context": [], "response": "Nobody knows."},
]
SCORED = ["a", "b", "東", "line-7"]


@pytest.fixture
def data(tmp_path):
    """Six records, two of which carry no score, and three lines that hold no record."""
    lines = [json.dumps(record, ensure_ascii=False).encode() for record in RECORDS]
    lines[2:2] = [b'{"id": "cut", "response": ', b""]
    lines += [b'{"id": "latin", "response": "caf\xe9"}', json.dumps(RECORDS[0]).encode()]
    path = tmp_path / "data.jsonl"
    path.write_bytes(b"\n".join(lines))
    return path


@pytest.fixture
def clean(tmp_path):
    path = tmp_path / "clean.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, RECORDS[:3])).encode()))
    return path


def test_one_example_as_text(groundscope):
    done = groundscope("score", *ONE)
    assert "1887" in done.stdout and "\x1b" not in done.stdout
    assert done.exit_code in (0, 1)


def test_exit_code_of_one_example_follows_the_verdict(groundscope):
    done = groundscope("score", *ONE, "--format", "json")
    verdict = Verdict.from_dict(json.loads(done.stdout))
    assert verdict.outcome == "scored" and verdict.question == ""
    assert verdict.response == "It was completed in 1887."
    assert all(verdict.response[t.start : t.end] == t.text for t in (*verdict.tokens, *verdict.spans))
    assert done.exit_code == int(verdict.flagged)
    assert groundscope("score", *ONE, "--format", "json", "--exit-zero").exit_code == 0


def test_threshold_decides_and_is_reported(groundscope):
    codes = {}
    for threshold in (-1e6, 1e6):
        done = groundscope("score", *ONE, "--format", "json", "--threshold", threshold)
        assert json.loads(done.stdout)["threshold"]["response"] == threshold
        codes[threshold] = done.exit_code
    assert codes == {-1e6: 1, 1e6: 0}


def test_example_without_score_exits_with_3(groundscope):
    done = groundscope("score", "--passage", PASSAGE, "--response", " ", "--format", "json")
    assert done.exit_code == 3
    assert json.loads(done.stdout)["outcome"] == "no_answer"


def test_spans_are_cut_by_their_own_threshold(groundscope):
    for threshold, spans in ((-1e6, 1), (1e6, 0)):
        done = groundscope("score", *ONE, "--format", "json", "--threshold", 1e6, "--span-threshold", threshold)
        verdict = json.loads(done.stdout)
        assert len(verdict["spans"]) == spans and verdict["threshold"]["span"] == threshold


def test_random_documents_come_from_where_they_are_asked_from(groundscope, clean, tmp_path):
    sources = {}
    for choice in ("auto", "pool"):
        groundscope("score", clean, "-o", tmp_path / choice, "--contrast", choice)
        sources[choice] = {verdict.contrast["source"] for verdict in read_verdicts(tmp_path / choice)}
    assert sources == {"auto": {"examples"}, "pool": {"pool"}}
    other = groundscope("score", clean, "-o", tmp_path / "pool")
    assert other.exit_code == 2 and "contrast was 'pool', is 'auto'" in other.stderr
    alone = groundscope("score", *ONE, "--contrast", "examples")
    assert alone.exit_code == 3 and "random document" in alone.stdout


def test_answers_that_claim_nothing_are_no_fault_of_a_file(groundscope, tmp_path):
    path = tmp_path / "declined.jsonl"
    declined = {"id": "no", "context": PASSAGE, "response": "I cannot answer this from the given passages."}
    path.write_text("\n".join(map(json.dumps, [RECORDS[0], declined, {**declined, "id": "empty", "response": ""}])))
    done = groundscope("score", path, "-o", tmp_path / "v.jsonl")
    assert done.exit_code == 0 and "1 scored" in done.stderr and "2 no_answer" in done.stderr


def test_context_on_request(groundscope):
    done = groundscope("score", *ONE, "--format", "json", "--include-context")
    assert json.loads(done.stdout)["passages"] == [PASSAGE]


@pytest.mark.parametrize("extension", ["html", "txt", "jsonl", "json"])
def test_one_example_into_a_file(groundscope, tmp_path, extension):
    path = tmp_path / f"report.{extension}"
    done = groundscope("score", *ONE, "-o", path)
    assert done.stdout == "" and "1887" in path.read_text()
    assert path.read_text().startswith("<!") is (extension == "html")
    again = groundscope("score", *ONE, "-o", path)
    assert again.exit_code == 2 and "--overwrite" in again.stderr
    assert groundscope("score", *ONE, "-o", path, "--overwrite").exit_code in (0, 1)


def test_one_html_page_on_stdout(groundscope):
    done = groundscope("score", *ONE, "--format", "html")
    assert done.stdout.startswith("<!") and done.stdout.rstrip().endswith("</html>")


def test_bad_lines_are_named_and_the_rest_is_scored(groundscope, data, tmp_path):
    out = tmp_path / "v.jsonl"
    done = groundscope("score", data, "-o", out)
    assert done.exit_code == 3 and done.stdout == ""
    verdicts = {verdict.id: verdict for verdict in read_verdicts(out)}
    assert list(verdicts) == ["a", "b", "東", "empty", "line-7", "f"]
    assert [name for name, verdict in verdicts.items() if verdict.score is not None] == SCORED
    assert verdicts["empty"].outcome == "no_answer" and verdicts["f"].outcome == "no_context"
    for number in (3, 9, 10):
        assert f"data.jsonl, line {number}: " in done.stderr
    last = done.stderr.splitlines()[-1]
    assert "4 scored" in last and "1 no_answer" in last and "3 not readable (line 3, 9, 10)" in last
    summary = json.loads((tmp_path / "v.jsonl.run.json").read_text())["summary"]
    assert [item["line"] for item in summary["bad_lines"]] == [3, 9, 10]
    assert summary["bad_lines"][2]["id"] == "a"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data.jsonl", "v.jsonl", "v.jsonl.run.json"]


def test_finished_run_is_not_repeated(groundscope, data, tmp_path):
    out = tmp_path / "v.jsonl"
    groundscope("score", data, "-o", out)
    before = out.read_bytes()
    out.touch()
    stamp = out.stat().st_mtime_ns
    again = groundscope("score", data, "-o", out)
    assert again.exit_code == 3
    assert "already complete" in again.stderr and "4 scored" in again.stderr
    assert out.read_bytes() == before and out.stat().st_mtime_ns == stamp


def test_changed_settings_or_input_are_refused(groundscope, clean, tmp_path):
    out = tmp_path / "v.jsonl"
    assert groundscope("score", clean, "-o", out).exit_code == 0
    other = groundscope("score", clean, "-o", out, "--limit", 1)
    assert other.exit_code == 2 and "limit was None, is 1" in other.stderr
    clean.write_bytes(clean.read_bytes() + gzip.compress(b"\n"))
    changed = groundscope("score", clean, "-o", out)
    assert changed.exit_code == 2 and "input_sha256" in changed.stderr
    assert groundscope("score", clean, "-o", out, "--overwrite").exit_code == 0


@pytest.mark.parametrize("name", ["v.jsonl", "v.jsonl.partial"])
def test_an_output_of_an_older_schema_is_not_gone_on_with(groundscope, clean, tmp_path, name):
    out, side = tmp_path / "v.jsonl", tmp_path / "v.jsonl.run.json"
    assert groundscope("score", clean, "-o", out).exit_code == 0
    record = json.loads(side.read_text())
    del record["settings"]["schema_version"]
    side.write_text(json.dumps(record))
    out.rename(tmp_path / name)
    before = (tmp_path / name).read_bytes()
    done = groundscope("score", clean, "-o", out)
    assert done.exit_code == 2 and "schema_version was None, is 2" in done.stderr and "--overwrite" in done.stderr
    assert (tmp_path / name).read_bytes() == before
    assert groundscope("score", clean, "-o", out, "--overwrite").exit_code == 0


def test_resumed_run_equals_an_unbroken_one(groundscope, data, tmp_path):
    whole = tmp_path / "whole.jsonl"
    groundscope("score", data, "-o", whole)
    lines = whole.read_bytes().splitlines(keepends=True)
    for done in (0, 3, 5):
        out = tmp_path / f"v{done}.jsonl"
        record = json.loads((tmp_path / "whole.jsonl.run.json").read_text())
        (tmp_path / f"v{done}.jsonl.run.json").write_text(json.dumps({"settings": record["settings"]}))
        (tmp_path / f"v{done}.jsonl.partial").write_bytes(b"".join(lines[:done]) + lines[done][:40])
        resumed = groundscope("score", data, "-o", out)
        assert resumed.exit_code == 3
        assert (f"{done} records are done already" in resumed.stderr) is (done > 0)
        assert "4 scored" in resumed.stderr
        pairs = list(zip(read_verdicts(out), read_verdicts(whole), strict=True))
        assert [one.id for one, _ in pairs] == [other.id for _, other in pairs]
        for one, other in pairs:
            assert one.outcome == other.outcome
            # Another batch adds up in another order; the random document must be the same one.
            assert one.contrast == other.contrast
            assert one.score == pytest.approx(other.score, abs=1e-4)


def test_stdout_says_what_the_file_says(groundscope, data, tmp_path):
    out = tmp_path / "v.jsonl"
    groundscope("score", data, "-o", out)
    done = groundscope("score", data, "--format", "json")
    assert done.exit_code == 3
    assert done.stdout.splitlines() == out.read_text(encoding="utf-8").splitlines()
    text = groundscope("score", data)
    assert text.exit_code == 3 and "Berlin" in text.stdout and "東京" in text.stdout


def test_one_json_document_if_the_name_says_so(groundscope, data, tmp_path):
    lines, whole, on = (tmp_path / name for name in ("v.jsonl", "v.json", "on.json"))
    groundscope("score", data, "-o", lines)
    assert groundscope("score", data, "-o", whole).exit_code == 3
    text = whole.read_text(encoding="utf-8")
    assert json.loads(text) == [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    assert "東京" in text and text.count("\n") == len(json.loads(text)) + 2
    assert "already complete" in groundscope("score", data, "-o", whole).stderr
    # Records stand line by line while the run goes on, and are gone on from.
    record = json.loads((tmp_path / "v.json.run.json").read_text())
    (tmp_path / "on.json.run.json").write_text(json.dumps({"settings": record["settings"]}))
    (tmp_path / "on.json.partial").write_bytes(b"".join(lines.read_bytes().splitlines(keepends=True)[:3]) + b'{"id')
    resumed = groundscope("score", data, "-o", on)
    assert resumed.exit_code == 3 and "3 records are done already" in resumed.stderr
    assert [item["id"] for item in json.loads(on.read_text())] == [item["id"] for item in json.loads(text)]
    assert not (tmp_path / "on.json.partial").exists()
    whole.write_text("[]")
    changed = groundscope("score", data, "-o", whole)
    assert changed.exit_code == 2 and "has changed since it was finished" in changed.stderr


def test_lines_of_an_earlier_version_are_not_taken_for_a_document(groundscope, clean, tmp_path):
    out = tmp_path / "v.json"
    groundscope("score", clean, "-o", out)
    side = tmp_path / "v.json.run.json"
    record = json.loads(side.read_text())
    side.write_text(json.dumps(record | {"settings": record["settings"] | {"format": "json"}}))
    done = groundscope("score", clean, "-o", out)
    assert done.exit_code == 2 and "format was 'json', is 'json array'" in done.stderr


def test_a_document_without_verdicts_is_an_empty_array(groundscope, tmp_path):
    (tmp_path / "bad.jsonl").write_text("{broken\n")
    assert groundscope("score", tmp_path / "bad.jsonl", "-o", tmp_path / "v.json").exit_code == 3
    assert json.loads((tmp_path / "v.json").read_text()) == []


def test_html_of_a_file_with_labels(groundscope, tmp_path):
    path = tmp_path / "data.jsonl"
    labelled = RECORDS[1] | {"labels": [{"start": 13, "end": 19, "type": "conflict"}]}
    path.write_text("\n".join(map(json.dumps, [RECORDS[0], labelled])))
    out = tmp_path / "report.html"
    assert groundscope("score", path, "-o", out).exit_code == 0
    page = out.read_text()
    assert page.startswith("<!") and "Berlin" in page and "conflict" in page
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data.jsonl", "report.html", "report.html.run.json"]
    assert "already complete" in groundscope("score", path, "-o", out).stderr
    on_stdout = groundscope("score", path, "--format", "html")
    assert on_stdout.stdout.startswith("<!") and "conflict" in on_stdout.stdout


def test_fail_on_flagged(groundscope, clean):
    low = ("--threshold", -1e6, "--format", "json")
    assert groundscope("score", clean, *low).exit_code == 0
    assert groundscope("score", clean, *low, "--fail-on-flagged").exit_code == 1
    assert groundscope("score", clean, "--threshold", 1e6, "--fail-on-flagged").exit_code == 0


def test_limit(groundscope, data):
    done = groundscope("score", data, "--format", "json", "--limit", 3)
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["a", "b"]
    assert "1 not readable (line 3)" in done.stderr


@pytest.mark.parametrize(
    ("option", "wrong", "meant"),
    [("--detector", "contrst", "contrast"), ("--model", "smollm2-135", "smollm2-135m")],
)
def test_misspelt_names_are_corrected(groundscope, option, wrong, meant):
    done = groundscope("score", *ONE, option, wrong)
    assert done.exit_code == 2 and done.stderr.count("\n") == 1
    assert f"Did you mean '{meant}'" in done.stderr


def test_own_template_is_used(groundscope, tmp_path):
    template = tmp_path / "template.txt"
    template.write_text("Read this: {passages}\nNow answer: {question}")
    # With a threshold of our own, no threshold has to be measured for the new template.
    arguments = ("score", *ONE, "--format", "json", "--threshold", 0)
    scores = {json.loads(groundscope(*arguments, *more).stdout)["score"] for more in ((), ("--template", template))}
    assert len(scores) == 2
    template.write_text("no placeholder")
    done = groundscope("score", *ONE, "--template", template)
    assert done.exit_code == 2 and "{passages}" in done.stderr
