"""extract, train, score, transfer: the way of a detector, on real tiny models in folders."""

import gzip
import json
import pickle
import shutil

import command_line
import numpy as np
import pytest
from labelled import make_examples
from sklearn.linear_model import LogisticRegression

from groundscope.lm.language_model import LanguageModel
from groundscope.trace.storage.store import TraceStore, shards


@pytest.fixture(scope="module")
def folders(make_tiny, tmp_path_factory):
    """Two models of unlike shape, and labelled data for them."""
    place = tmp_path_factory.mktemp("models")
    for name, shape in (("a", {}), ("b", {"layers": 2, "heads": 8})):
        lm = make_tiny(name=name, **shape)
        lm.model.save_pretrained(place / name)
        lm.tokenizer.save_pretrained(place / name)
    lines = [json.dumps(example.to_dict()) for example in make_examples(24)]
    refusal = {"id": "refusal", "question": "q", "context": "c", "response": "I don't know.", "hallucinated": False}
    lines += ["{broken", json.dumps(refusal)]
    (place / "data.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    return place


def run(*arguments, code=0):
    return command_line.run(*arguments, code=code)


@pytest.fixture(scope="module")
def store(folders):
    run("extract", folders / "data.jsonl.gz", "-o", folders / "traces", "--model", folders / "a",
        "--detector", "lookback-lens", "--detector", "contrast", code=3)  # fmt: skip
    return folders / "traces"


@pytest.fixture(scope="module")
def trained(folders, store):
    run("train", "lookback-lens", "--train", store, "-o", folders / "probe", "-p", "units=response", "-p", "C=10")
    return folders / "probe"


def test_extraction_keeps_what_could_be_read_and_says_what_not(folders, store):
    kept = TraceStore(store)
    assert len(kept) == 24 and set(kept.signals) == {"lookback_ratio", "token_logprob", "token_logprob_contrast"}
    assert [item["outcome"] for item in kept.unread] == ["no_answer"]
    done = run("extract", folders / "data.jsonl.gz", "-o", store, "--model", folders / "a",
               "--detector", "lookback-lens", "--detector", "contrast", code=3)  # fmt: skip
    assert "24 traces" in done.stderr and "1 no_answer" in done.stderr and "line 25" in done.stderr
    assert "already complete. Pass --overwrite" in done.stderr
    assert len(shards(store)) == 1  # nothing was read again


def test_what_is_complete_is_left_without_a_model(folders, store, tmp_path, monkeypatch):
    place = tmp_path / "traces"
    shutil.copytree(store, place)
    command = ["extract", folders / "data.jsonl.gz", "-o", place, "--model", folders / "a",
               "--detector", "lookback-lens", "--detector", "contrast"]  # fmt: skip

    def refuse(*_a, **_k):
        raise AssertionError("a model was loaded")

    load = LanguageModel.from_pretrained
    monkeypatch.setattr(LanguageModel, "from_pretrained", refuse)
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    first, again = (run(*command, code=3).stderr for _ in range(2))
    assert first == again and "already complete" in first
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before
    # Anything else needs the model: other wishes, a model that has changed, a record that failed, a missing shard.
    for more in (["--overwrite"], ["--dtype", "bfloat16"], ["--signal", "token_entropy"], ["--seed", 3]):
        with pytest.raises(AssertionError, match="a model was loaded"):
            run(*command, *more)
    index = json.loads((place / "store.json").read_text())
    failed = [*index["unread"], {"outcome": "failed", "message": "m", "id": "x", "number": 99}]
    for change in ({"asked": {}}, {"unread": failed}):
        (place / "store.json").write_text(json.dumps(index | change))
        with pytest.raises(AssertionError, match="a model was loaded"):
            run(*command)
    (place / "store.json").write_text(json.dumps(index))
    shard = shards(place)[0]
    raw = shard.read_bytes()
    shard.write_bytes(raw[: len(raw) // 2])
    assert "damaged" in run(*command, code=2).stderr  # and no model is loaded to say so
    shard.unlink()
    monkeypatch.setattr(LanguageModel, "from_pretrained", load)
    assert "already complete" not in run(*command, code=3).stderr
    assert len(TraceStore(place).read()) == 24


def test_training_writes_a_detector_and_its_card(trained):
    assert {path.name for path in trained.iterdir()} == {"detector.json", "detector.safetensors", "README.md"}
    config = json.loads((trained / "detector.json").read_text())
    assert config["params"]["units"] == "response" and config["params"]["C"] == 10
    assert config["threshold"]["source"].endswith("held-out examples (objective f1)")
    card = (trained / "README.md").read_text()
    assert "control: response length" in card and "traces" in card and "12 hallucinated" not in card.split("## Data")[0]


def test_training_from_text_and_from_traces_is_the_same(folders, store):
    found = []
    for source, more in ((folders / "data.jsonl.gz", ["--model", folders / "a"]), (store, [])):
        folder = folders / f"same-{len(found)}"
        done = run("train", "lookback-lens", "--train", source, "-o", folder, "--format", "json", *more)
        found.append(json.loads(done.stdout))
    for one, other in zip(found[0]["figures"], found[1]["figures"], strict=True):
        assert one["name"] == other["name"] and abs(one["auroc"]["value"] - other["auroc"]["value"]) < 0.05


def test_a_trained_detector_scores_and_refuses_other_models(folders, trained):
    arguments = ["score", "--passage", "Bees make honey.", "--response", "Bees stand in Paris.", "--detector", trained]
    done = run(*arguments, "--model", folders / "a", "--format", "json", "--exit-zero")
    verdict = json.loads(done.stdout)
    assert verdict["detector"] == "lookback-lens" and 0 <= verdict["score"] <= 1
    assert "held-out" in verdict["threshold"]["source"]
    done = run(*arguments, "--model", folders / "b", code=2)
    assert "learnt from traces of" in done.stderr and "groundscope transfer" in done.stderr


def test_transfer_makes_a_probe_for_the_other_model(folders, trained):
    done = run("transfer", trained, "--data", folders / "data.jsonl.gz", "--to", folders / "b", "-o", folders / "moved",
               "--dev", folders / "data.jsonl.gz", "--format", "json")  # fmt: skip
    report = json.loads(done.stdout)
    assert report["units"] == 48 and report["features"] == 16 and -10 < report["r2"] <= 1
    done = run("score", "--passage", "Bees make honey.", "--response", "Bees stand in Paris.", "--detector",
               folders / "moved", "--model", folders / "b", "--format", "json", "--exit-zero")  # fmt: skip
    assert json.loads(done.stdout)["detector"] == "lookback-lens"
    assert "carried over from" in (folders / "moved" / "README.md").read_text()


def test_a_detector_is_replaced_only_if_asked(folders, store, trained, tmp_path):
    place = tmp_path / "probe"
    shutil.copytree(trained, place)
    data = folders / "data.jsonl.gz"
    for command in (
        ["train", "lookback-lens", "--train", store],
        ["transfer", trained, "--data", data, "--to", folders / "b"],
    ):
        done = run(*command, "-o", place, code=2)
        assert "Pass --overwrite" in done.stderr
    assert (place / "detector.safetensors").read_bytes() == (trained / "detector.safetensors").read_bytes()
    run("train", "lookback-lens", "--train", store, "-o", place, "-p", "C=5.0", "--overwrite")
    assert (place / "detector.safetensors").read_bytes() != (trained / "detector.safetensors").read_bytes()


def test_verdicts_of_a_detector_that_has_learnt_anew_are_not_kept(folders, store, trained, tmp_path):
    place, data = tmp_path / "probe", tmp_path / "two.jsonl"
    shutil.copytree(trained, place)
    data.write_text("".join(json.dumps(example.to_dict()) + "\n" for example in make_examples(2)))
    command = [
        "score",
        data,
        "--detector",
        place,
        "--model",
        folders / "a",
        "-o",
        tmp_path / "out.jsonl",
        "--exit-zero",
    ]
    run(*command)
    assert "already complete" in run(*command).stderr
    run("train", "lookback-lens", "--train", store, "-o", place, "-p", "C=5.0", "--overwrite")
    assert "detector_sha256" in run(*command, code=2).stderr


def test_a_model_whose_files_changed_resumes_nothing_of_the_old_one(folders, tmp_path):
    model, data = tmp_path / "model", tmp_path / "two.jsonl"
    shutil.copytree(folders / "a", model)
    data.write_text("".join(json.dumps(example.to_dict()) + "\n" for example in make_examples(2)))
    command = ["score", data, "--detector", "perplexity", "--threshold", "99", "--model", model]
    command += ["-o", tmp_path / "out.jsonl"]
    run(*command)
    assert "already complete" in run(*command).stderr
    (model / "config.json").write_text((model / "config.json").read_text() + "\n")
    assert "model_files" in run(*command, code=2).stderr


def test_transfer_refuses_to_choose_on_one_class_before_reading(folders, trained, tmp_path):
    with gzip.open(folders / "data.jsonl.gz", "rt") as stream:
        lines = [line for line in stream if '"hallucinated": false' in line]
    (tmp_path / "dev.jsonl").write_text("".join(lines))
    done = run("transfer", trained, "--data", folders / "data.jsonl.gz", "--to", "./no-such-model", "-o",
               tmp_path / "out", "--dev", tmp_path / "dev.jsonl", code=2)  # fmt: skip
    assert "of one class" in done.stderr and "no-such-model" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "lookback-lenss", "--train", "{data}", "-o", "{out}"], "Did you mean 'lookback-lens'"),
        (["train", "contrast", "--train", "{data}", "-o", "{out}"], "does not learn"),
        (["train", "lookback-lens", "--train", "{data}", "-o", "{out}", "-p", "C"], "NAME=VALUE"),
        (["train", "lookback-lens", "--train", "{data}", "-o", "{out}", "-p", "C=-1"], "'C'"),
        (["train", "lookback-lens", "--train", "{data}", "-o", "{out}", "-p", "D=1"], "Its parameters: context"),
        (["train", "lookback-lens", "--train", "{data}", "-o", "{out}", "--objective", "f2"], "objective must be"),
        (["train", "lookback-lens", "--train", "nowhere.jsonl", "-o", "{out}"], "cannot be read"),
        (["train", "lookback-lens", "--train", "{data}", "-o", "{models}/a"], "no saved detector"),
        (["train", "aggtruth", "--train", "{store}", "-o", "{out}"], "lacks the signals aggtruth_sum"),
        (["train", "redeep-chunk", "--train", "{store}", "-o", "{out}"], "reads chunks of"),
        (["train", "lookback-lens", "--train", "{store}", "--train", "{store}", "-o", "{out}"], "must be given once"),
        (["evaluate", "{store}", "{store}", "-d", "perplexity", "-o", "{out}"], "must be given once"),
        (["train", "lookback-lens", "--train", "{models}/a", "-o", "{out}"], "it lacks store.json"),
        (["transfer", "{probe}", "--data", "{store}", "--to", "x", "-o", "{out}"], "with --target"),
        (["train", "lookback-lens", "--train", "{store}", "--dev", "{store}", "-o", "{out}"], "must not share"),
        (["train", "lookback-lens", "--train", "{store}", "-o", "{out}", "--model", "other"], "was read by"),
        (["transfer", "{models}/a", "--data", "{data}", "--to", "x", "-o", "{out}"], "lacks detector.json"),
        (["transfer", "{probe}", "--data", "{data}", "-o", "{out}"], "either --to MODEL or --target"),
        (["extract", "{data}", "-o", "{models}/a"], "no trace store"),
        (["extract", "{data}", "-o", "{out}", "--signal", "lookback", "--model", "{models}/a"], "Did you mean"),
        (["extract", "nowhere.jsonl", "-o", "{out}"], "cannot be read"),
    ],
)
def test_wrong_use_is_refused_and_leaves_nothing(folders, store, trained, tmp_path, arguments, message):
    names = {"data": folders / "data.jsonl.gz", "out": tmp_path / "out", "models": folders, "store": store}
    done = run(*(str(item).format(probe=trained, **names) for item in arguments), code=2)
    assert message in " ".join(done.stderr.split())
    assert not (tmp_path / "out").exists()


def test_only_heads_that_copy_are_candidates_if_asked(folders):
    run("extract", folders / "data.jsonl.gz", "-o", folders / "redeep", "--model", folders / "a",
        "--detector", "redeep-token", code=3)  # fmt: skip
    run("train", "redeep-token", "--train", folders / "redeep", "-o", folders / "copying", "--copying-heads", 3)
    config = json.loads((folders / "copying" / "detector.json").read_text())
    candidates = {tuple(head) for head in config["params"]["candidates"]}
    assert len(candidates) == 3 and {tuple(head) for head in config["facts"]["heads"]} <= candidates
    done = run(
        "train", "lookback-lens", "--train", folders / "redeep", "-o", folders / "x", "--copying-heads", 3, code=2
    )
    assert "goes with redeep" in done.stderr


def test_a_released_classifier_is_imported_and_anything_else_refused(folders, tmp_path):
    rng = np.random.default_rng(0)
    model = LogisticRegression().fit(rng.normal(size=(40, 1024)), np.arange(40) % 2)
    released = tmp_path / "released.pkl"
    released.write_bytes(pickle.dumps({"clf": model, "best_threshold": 0.9}, protocol=4))
    assert "1024 weights" in run("import-probe", released, "-o", tmp_path / "probe").stdout
    done = run("score", "--passage", "p", "--response", "Bees stand.", "--detector", tmp_path / "probe",
               "--model", folders / "a", code=2)  # fmt: skip
    assert "cannot score" in done.stderr
    (tmp_path / "evil.pkl").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    run("import-probe", tmp_path / "evil.pkl", "-o", tmp_path / "no", code=2)
    assert not (tmp_path / "no").exists()


def test_by_default_all_that_the_model_can_serve_is_extracted(folders, caplog):
    run("extract", folders / "data.jsonl.gz", "-o", folders / "all", "--model", folders / "a", "--limit", 4)
    assert "hidden-state is left out" in caplog.text and "saplma is left out" in caplog.text
    kept = TraceStore(folders / "all").signals
    assert {"lookback_ratio", "aggtruth_sum", "external_context_score", "chunk_context_score", "mmd"} <= set(kept)


def test_evaluation_by_default_takes_what_the_store_serves(folders, store, caplog):
    done = run("evaluate", store, "-o", folders / "report", "--folds", 2, "--resamples", 20, "--format", "json",
               "--no-cross-task", "--level", "response")  # fmt: skip
    rows = {row["name"]: row for row in json.loads(done.stdout)["rows"]}
    assert {"contrast", "lookback-lens", "perplexity", "response length"} <= set(rows)
    assert "aggtruth" not in rows and "aggtruth is left out" in caplog.text
    assert rows["lookback-lens"]["measured"][0]["units"] == 24
    for name in ("results.json", "report.md", "report.html"):
        assert (folders / "report" / name).stat().st_size > 500


def test_a_limit_counts_the_same_records_of_a_file_and_of_its_store(folders, tmp_path):
    """Lines that hold no record and answers that claim nothing count in either."""
    lines = [json.dumps(example.to_dict()) for example in make_examples(24)]
    refusal = {"id": "refusal", "question": "q", "context": "c", "response": "I don't know.", "hallucinated": False}
    late = refusal | {"id": "late"}
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join([*lines[:3], "{broken", json.dumps(refusal), *lines[3:], json.dumps(late)]))
    run("extract", data, "-o", tmp_path / "traces", "--model", folders / "a", "--detector", "perplexity", code=3)
    found = []
    for source, more in ((data, ["--model", folders / "a"]), (tmp_path / "traces", [])):
        place = tmp_path / f"report-{len(found)}"
        # Of the first twenty records eighteen can be read; only the file still has the line that is broken.
        done = run("evaluate", source, "-o", place, "-d", "perplexity", "--limit", 20, "--folds", 2, "--resamples", 20,
                   "--no-cross-task", *more, code=0 if found else 3)  # fmt: skip
        results = json.loads((place / "results.json").read_text())
        found.append([results["data"]["examples"], results["data"]["positives"], results["data"]["sources"]])
        assert "18 examples read, 1 no_answer" in done.stderr
    assert found == [[18, 9, 9]] * 2
