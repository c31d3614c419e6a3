"""``groundscope generate`` on the embedded model."""

import json

import pytest
from typer.testing import CliRunner

from groundscope.cli.main import app
from groundscope.mitigate.writing.decisions import DecisionLog, replay
from groundscope.verdict import Verdict

PASSAGE = "The tower was completed in 1889 by the engineers of the company and stands in Paris."
ONE = ("--question", "When was the tower completed?", "--passage", PASSAGE, "--max-new-tokens", "12")


def test_json_holds_text_verdict_and_log(groundscope, embedded_scope):
    done = groundscope("generate", *ONE, "--format", "json", "--include-context")
    record = json.loads(done.stdout)
    verdict, log = Verdict.from_dict(record["verdict"]), DecisionLog.from_dict(record["log"])
    assert record["text"] == verdict.response == replay(log, embedded_scope.lm.tokenizer)
    assert verdict.passages == (PASSAGE,) and "1889" in record["text"]
    assert done.exit_code == (1 if verdict.flagged else 0)


def test_the_answer_comes_first_and_then_its_verdict(groundscope, tmp_path):
    (tmp_path / "passage.txt").write_text(PASSAGE)
    arguments = [*ONE[:2], "--passage", f"@{tmp_path / 'passage.txt'}", "--max-new-tokens", "12"]
    quiet = groundscope("generate", *arguments)
    live = groundscope("generate", *arguments, "--stream", "--exit-zero")
    assert live.exit_code == 0 and "\x1b" not in live.stdout
    answer, _, rest = live.stdout.partition("\n\n")
    assert "1889" in answer and rest == quiet.stdout and answer.split()[0] in quiet.stdout


@pytest.mark.slow
def test_a_seed_writes_the_same_answer_again(groundscope):
    options = ("--strategy", "guided", "--candidates", "2", "--chunk", "4", "--format", "json", "--exit-zero")
    one, two = (json.loads(groundscope("generate", *ONE, *options).stdout) for _ in range(2))
    assert one == two and one["strategy"] == "guided" and len(one["log"]["decisions"]) <= 3


def test_abstaining_shows_the_refusal_alone(groundscope):
    done = groundscope("generate", *ONE, "--abstain", "refuse", "--threshold", "-1000")
    assert done.stdout.startswith("I cannot answer this") and "1889" not in done.stdout and done.exit_code == 1
    assert "-1000" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "at least one --passage"),
        (["--passage", "p", "--chunk", "4"], "no effect"),
        (["--passage", "p", "--strategy", "sample", "--temperature", "0"], "strategy='greedy'"),
        (["--passage", "p", "--stream", "--format", "json"], "--stream"),
        (["--passage", "p", "--stream", "--abstain", "refuse"], "--abstain refuse"),
        (["--passage", "-", "--passage", "-"], "one option only"),
        (["--passage", "p", "--stop", ""], "stop"),
        (["--passage", "p", "--strategy", "best-of-n", "--n", "0"], "'n'"),
        (["--passage", "@missing"], "missing"),
    ],
)
def test_wrong_use_is_refused_before_a_model_is_loaded(arguments, said, monkeypatch):
    from groundscope.cli.answers.reading import Reading

    monkeypatch.setattr(Reading, "load", lambda self: pytest.fail("a model was loaded"))
    done = CliRunner().invoke(app, ["generate", *arguments])
    assert done.exit_code == 2 and said in done.stderr


def test_passages_that_fill_the_context_are_refused(groundscope):
    done = groundscope("generate", "--passage", PASSAGE * 600, "--question", "When?")
    assert done.exit_code == 2 and "lower max_new_tokens" in done.stderr and done.stdout == ""


def test_a_detector_that_cannot_guide_is_refused(groundscope):
    done = groundscope("generate", *ONE, "--strategy", "guided", "--detector", "novelty", "--threshold", "1")
    assert done.exit_code == 2 and "cannot be had while the text is written" in done.stderr
