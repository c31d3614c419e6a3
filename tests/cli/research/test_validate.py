"""``groundscope validate`` and ``groundscope analyse`` on a real tiny model in a folder."""

from __future__ import annotations

import json

import command_line
import pytest
from towers import make_examples


@pytest.fixture(scope="module")
def place(make_tiny, tmp_path_factory):
    place = tmp_path_factory.mktemp("analyses")
    lm = make_tiny()
    lm.model.save_pretrained(place / "model")
    lm.tokenizer.save_pretrained(place / "model")
    lines = [json.dumps(example.to_dict()) for example in make_examples(12)]
    (place / "data.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (place / "broken.jsonl").write_text("\n".join([*lines[:16], "{no"]), encoding="utf-8")
    return place


def run(*arguments, code=0):
    return command_line.run(*arguments, code=code)


def test_validate_prints_a_table_and_writes_the_same_as_json(place):
    out = place / "validation.json"
    shown = run("validate", place / "data.jsonl", "--model", place / "model", "--resamples", 30, "-o", out).stdout
    for words in ("mmd (external)", "H2", "placebo", "excess", "design effect", "H1: answers", "not testable", "H3"):
        assert words in shown, words
    first, second = json.loads(out.read_text(encoding="utf-8"))
    assert (first["role"], second["role"]) == ("external", "internal")
    h2 = first["tested"][1]
    assert h2["real"]["first"]["responses"] == h2["real"]["second"]["responses"] == 12
    assert f"{h2['real']['difference']['value']:.3f}" in shown and f"{h2['real']['clustered']['t']:.2f}" in shown


def test_validate_as_json_on_a_signal_of_choice(place):
    shown = run("validate", place / "broken.jsonl", "--model", place / "model", "--resamples", 20, "--limit", 17,
                "--signal", "token_entropy", "--role", "internal", "--format", "json", code=3).stdout  # fmt: skip
    (found,) = json.loads(shown)
    assert [item["name"] for item in found["tested"]] == ["H3", "H4"]
    assert found["data"]["examples"] == 16 and found["tested"][0]["real"]["paired"]


def test_analyse_writes_a_report(place):
    out = place / "report"
    shown = run("analyse", place / "data.jsonl", "-o", out, "--model", place / "model", "--resamples", 30,
                "--heads", "difference:2", "--layers", "1", "--factor", 3, "--draws", 2, "--copying",
                "--robustness", "dropped", "--robustness", "weight").stdout  # fmt: skip
    assert (out / "analysis.md").read_text(encoding="utf-8") == shown
    found = json.loads((out / "analysis.json").read_text(encoding="utf-8"))
    heads, layers = found["differences"]
    assert len(heads["places"]) == 12 and len(layers["places"]) == 3 and heads["copying"]["heads"] == 12
    noisy, loud = found["interventions"]
    assert len(noisy["chosen"]) == 2 and noisy["groups"][0]["responses"] < 24 == loud["groups"][0]["responses"]
    assert len(found["robustness"]["points"]) == 4 + 9
    for words in ("## external_context_score", "## Intervention: random attention", "## Robustness of Lumina"):
        assert words in shown
    assert any("several tasks" in note for note in found["notes"])


def test_analyse_takes_a_trace_store_and_its_model(place):
    store = place / "traces"
    run("extract", place / "data.jsonl", "-o", store, "--model", place / "model", "--signal", "external_context_score")
    run("analyse", store, "-o", place / "from-store", "--resamples", 20, "--heads", "0.1", "--draws", 1, "--task", "qa")
    found = json.loads((place / "from-store" / "analysis.json").read_text(encoding="utf-8"))
    assert [item["signal"] for item in found["differences"]] == ["external_context_score"]
    assert found["data"]["tasks"] == {"qa": 12} and "parametric_knowledge_score" in found["notes"][0]
    assert found["interventions"][0]["groups"][0]["responses"] == 12


def test_a_store_that_holds_none_of_what_is_compared_is_refused(place):
    store = place / "plain"
    run("extract", place / "data.jsonl", "-o", store, "--model", place / "model", "--signal", "token_entropy")
    done = run("analyse", store, "-o", place / "nothing", code=2)
    assert "--signal external_context_score" in done.stderr and "--signal parametric_knowledge_score" in done.stderr
    assert not (place / "nothing").exists()


def test_wrong_use_is_one_line(place, tmp_path):
    (tmp_path / "other.txt").write_text("x")
    model = ("--model", place / "model")
    for arguments, words in (
        (("analyse", place / "data.jsonl", "-o", tmp_path), "is no analysis"),
        (("analyse", place / "data.jsonl", "-o", place / "x", "--no-differences"), "Nothing is asked"),
        (("analyse", place / "data.jsonl", "-o", place / "x", "--task", "chess"), "no labelled examples"),
        (("analyse", place / "data.jsonl", "-o", place / "x", "--no-differences", "--heads", "9.9", *model), "layers"),
        (("validate", place / "data.jsonl", "--signal", "nonsense"), "Unknown signal or detector"),
        (("validate", place / "data.jsonl", "--signal", "perplexity"), "--role"),
    ):
        done = run(*arguments, code=2)
        assert words in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.slow
def test_the_embedded_model_on_real_answers(embedded, tmp_path):
    import itertools
    from pathlib import Path

    sample = Path(__file__).parents[3] / "examples" / "ragtruth_qa_sample.jsonl"
    records = [json.loads(line) for line in sample.read_text(encoding="utf-8").splitlines()]
    wrong = [record for record in records if record["hallucinated"]]
    right = [record for record in records if not record["hallucinated"]]
    chosen = [{**record, "context": record["context"][:1]} for record in itertools.chain(wrong[:2], right[:2])]
    data = tmp_path / "four.jsonl"
    data.write_text("\n".join(map(json.dumps, chosen)), encoding="utf-8")
    run("validate", data, "--generate", "--max-new-tokens", 16, "--signal", "mmd", "-o", tmp_path / "v.json")
    (found,) = json.loads((tmp_path / "v.json").read_text(encoding="utf-8"))
    h1 = found["tested"][0]
    assert h1["reason"] is None and h1["real"]["first"]["mean"] > 0 and h1["outcome"] == "too few sources"
    run("analyse", data, "-o", tmp_path / "a", "--heads", "15.3,20.1", "--draws", 1)
    report = json.loads((tmp_path / "a" / "analysis.json").read_text(encoding="utf-8"))
    assert len(report["differences"][0]["places"]) == 270 and len(report["differences"][1]["places"]) == 30
    whole = report["interventions"][0]["groups"][0]
    assert whole["responses"] == 4 and whole["unchanged"]["value"] > 0 and whole["chosen"]["value"] != 0
