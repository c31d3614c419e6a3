"""Data that cannot be learnt from or measured on are refused before a model is loaded or a signal is.

No model is called as the one here, so a command that gets as far as loading it says something else.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from labelled import make_examples
from typer.testing import CliRunner

from groundscope.cli.main import app
from groundscope.trace.storage.store import shards

EXAMPLES = make_examples(24)
FAITHFUL = [example for example in EXAMPLES if not example.hallucinated]
WHOLE = [
    replace(example, labels=None if example.hallucinated else (), label_kind="response", split="train")
    for example in EXAMPLES
]
ONE_SOURCE = [replace(example, source_id="one", passages=EXAMPLES[0].passages) for example in EXAMPLES]
# The only hallucinated answers decline to answer, and such are never read.
DECLINED = [*FAITHFUL, *(replace(e, response="I don't know.", labels=()) for e in EXAMPLES if e.hallucinated)]
OTHERS = [
    replace(example, id=f"other-{example.id}", source_id=f"other-{example.source_id}", passages=(example.response,))
    for example in EXAMPLES
]
FILES = {
    "good": EXAMPLES,
    "faithful": FAITHFUL,
    "whole": WHOLE,
    "unmarked": [replace(example, labels=()) for example in EXAMPLES],
    "lone": ONE_SOURCE,
    "declined": DECLINED,
    "others": OTHERS,
    "others-faithful": [example for example in OTHERS if not example.hallucinated],
    "others-whole": [replace(e, labels=None, label_kind="response") for e in OTHERS],
}
NO_MODEL = "./no-such-model"


def write(path, examples):
    path.write_text("".join(json.dumps(example.to_dict()) + "\n" for example in examples), encoding="utf-8")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, examples in FILES.items():
        write(tmp_path / f"{name}.jsonl", examples)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments), "-o", "out"])


LENS = ("train", "lookback-lens", "--train")
TRAIN = {
    "one class": ((*LENS, "faithful.jsonl"), "Got 12 faithful and 0 hallucinated"),
    "one class of what can be read": ((*LENS, "declined.jsonl"), "Got 12 faithful and 0 hallucinated"),
    "labels of whole responses": ((*LENS, "whole.jsonl"), "learns from labels of the kind 'span' or 'sentence'"),
    "no marked stretch": ((*LENS, "unmarked.jsonl"), "no marked stretch in any"),
    "one of several files": ((*LENS, "good.jsonl", "--train", "others-whole.jsonl"), "'other-e1' has labels of the"),
    "one source": ((*LENS, "lone.jsonl"), "cannot be held back by source"),
    "one class to choose on": ((*LENS, "good.jsonl", "--dev", "others-faithful.jsonl"), "Got 12 faithful and 0"),
    "coarse labels to choose on": ((*LENS, "good.jsonl", "--dev", "others-whole.jsonl"), "'other-e1' has labels"),
    "shared with dev": ((*LENS, "good.jsonl", "--dev", "good.jsonl"), "must not share an id"),
    "shared with test": ((*LENS, "good.jsonl", "--test", "good.jsonl"), "must not share an id"),
    "before heads are looked for": (
        ("train", "redeep-token", "--train", "faithful.jsonl", "--copying-heads", 3),
        "Got 12 faithful and 0 hallucinated",
    ),
}
EVALUATE = {
    "one class": (("faithful.jsonl", "-d", "perplexity"), "one class only: 12 faithful and 0 hallucinated"),
    "one class of what can be read": (("declined.jsonl", "-d", "perplexity"), "one class only: 12 faithful"),
    "fewer sources than folds": (
        ("good.jsonl", "--folds", 13, "-d", "perplexity"),
        "needs at least 13 sources. Got 12",
    ),
    "no splits": (("good.jsonl", "--split", "records", "-d", "perplexity"), "needs 'split' to be one of"),
    "no test split": (("whole.jsonl", "--split", "records", "-d", "perplexity"), "No record says 'test'"),
    "one source": (("lone.jsonl", "--split", "shares", "-d", "perplexity"), "cannot be held back by source"),
    "test of one class": (("good.jsonl", "--test", "others-faithful.jsonl", "-d", "perplexity"), "of both classes"),
    "shared with test": (("good.jsonl", "--test", "good.jsonl", "-d", "perplexity"), "must not share an id"),
    "labels of whole responses": (
        ("whole.jsonl", "-d", "lookback-lens", "-d", "aggtruth"),
        "lookback-lens learns from labels of the kind 'span' or 'sentence'",
    ),
}


def test_what_can_be_learnt_from_gets_as_far_as_the_model():
    for arguments in (
        (*LENS, "good.jsonl"),
        (*LENS, "good.jsonl", "--dev", "others.jsonl"),
        (*LENS, "whole.jsonl", "-p", "units=response"),
        ("evaluate", "good.jsonl"),
        ("evaluate", "good.jsonl", "--test", "others-whole.jsonl", "-d", "lookback-lens"),
        ("evaluate", "whole.jsonl", "-d", "lookback-lens", "-d", "perplexity"),
    ):
        done = run(*arguments, "--model", NO_MODEL)
        assert done.exit_code == 2 and NO_MODEL in done.stderr, (arguments, done.stderr)


@pytest.mark.parametrize("name", TRAIN)
def test_training(place, name):
    arguments, message = TRAIN[name]
    _refused(place, run(*arguments, "--model", NO_MODEL), message)


@pytest.mark.parametrize("name", EVALUATE)
def test_evaluation(place, name):
    arguments, message = EVALUATE[name]
    _refused(place, run("evaluate", *arguments, "--model", NO_MODEL), message)


def _refused(place, done, message):
    assert done.exit_code == 2, done.output
    assert message in done.stderr and NO_MODEL not in done.stderr
    assert done.stderr.count("\n") == 1 and done.stdout == "" and not (place / "out").exists()


@pytest.fixture
def bare_store(place, make_tiny):
    """Make a trace store whose signals are gone from its shard, so that loading one fails."""
    lm = make_tiny()
    lm.model.save_pretrained(place / "model")
    lm.tokenizer.save_pretrained(place / "model")

    def make(name):
        done = CliRunner().invoke(app, ["extract", f"{name}.jsonl", "-o", f"{name}-traces", "--model", "model",
                                        "--detector", "lookback-lens"])  # fmt: skip
        assert done.exit_code == 0, done.output
        (shard,) = shards(place / f"{name}-traces")
        table = pq.read_table(shard)
        pq.write_table(table.select([column for column in table.column_names if "signal" not in column]), shard)
        return f"{name}-traces"

    return make


NOT_THERE = {
    "candidates": ("candidates=[[0, 1], [9, 0]]", "in each of the layers 0 to 2 with attention. Got (9, 0) among them"),
    "heads": ("heads=9999", "'heads' parameter of ReDeEPToken must be at most 12"),
    "heads among candidates": ("candidates=[[0, 1]]", "'heads' parameter of ReDeEPToken must be at most 1,"),
    "layers": ("layers=4", "'layers' parameter of ReDeEPToken must be at most 3"),
}


@pytest.mark.parametrize("case", NOT_THERE)
def test_heads_and_layers_that_the_model_does_not_have(place, make_tiny, monkeypatch, case):
    lm = make_tiny()
    lm.model.save_pretrained(place / "model")
    lm.tokenizer.save_pretrained(place / "model")
    monkeypatch.setattr("groundscope.reading.Reader.read", lambda *_, **__: pytest.fail("the model reads"))
    setting, message = NOT_THERE[case]
    more = ("-p", "heads=2") if case == "heads among candidates" else ()
    done = run("train", "redeep-token", "--train", "good.jsonl", "-p", setting, *more, "--model", "model")
    assert done.exit_code == 2 and message in done.stderr, done.output
    named = f"redeep-token:{setting}" if not more and "," not in setting else None
    if named is not None:
        done = run("evaluate", "good.jsonl", "-d", named, "--model", "model")
        assert done.exit_code == 2 and message in done.stderr, done.output


def test_more_copying_heads_than_there_are(place, make_tiny, monkeypatch):
    lm = make_tiny()
    lm.model.save_pretrained(place / "model")
    lm.tokenizer.save_pretrained(place / "model")
    monkeypatch.setattr("groundscope.learn.copying.copying_heads", lambda *_, **__: pytest.fail("weights are read"))
    done = run("train", "redeep-token", "--train", "good.jsonl", "--copying-heads", 9999, "--model", "model")
    assert done.exit_code == 2 and "--copying-heads must be at most 12" in done.stderr, done.output


def test_heads_that_the_model_of_a_store_does_not_have(place, make_tiny):
    lm = make_tiny()
    lm.model.save_pretrained(place / "model")
    lm.tokenizer.save_pretrained(place / "model")
    done = CliRunner().invoke(app, ["extract", "good.jsonl", "-o", "traces", "--model", "model",
                                    "--detector", "redeep-token"])  # fmt: skip
    assert done.exit_code == 0, done.output
    (shard,) = shards(place / "traces")
    table = pq.read_table(shard)
    pq.write_table(table.select([column for column in table.column_names if "signal" not in column]), shard)
    for arguments in (("train", "redeep-token", "--train", "traces", "-p", "heads=9999"),
                      ("evaluate", "traces", "-d", "redeep-token:heads=9999")):  # fmt: skip
        _refused(place, run(*arguments), "must be at most 12")


def test_trace_stores(place, bare_store):
    good, faithful = bare_store("good"), bare_store("faithful")
    for arguments in ((*LENS, good), ("evaluate", good, "-d", "lookback-lens")):
        done = run(*arguments)
        assert done.exit_code == 2 and "is damaged" in done.stderr  # these do load signals
    _refused(place, run(*LENS, faithful), "Got 12 faithful and 0 hallucinated")
    _refused(place, run("evaluate", faithful, "-d", "lookback-lens"), "one class only: 12 faithful")
    _refused(place, run("evaluate", good, "-d", "lookback-lens", "--folds", 13), "needs at least 13 sources")
