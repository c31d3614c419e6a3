"""calibrate, then score by the profile: real tiny models in folders, on the command line."""

from __future__ import annotations

import json

import pytest
from labelled import make_examples
from saved import fitted
from typer.testing import CliRunner

import groundscope as gs
from groundscope.cli.main import app
from groundscope.detectors.thresholds import reference_sample
from groundscope.learn.promise import Promise
from groundscope.verdict import Threshold


@pytest.fixture(scope="module")
def place(make_tiny, tmp_path_factory):
    """Two models of unlike shape, a probe for the first, and answers without labels."""
    folder = tmp_path_factory.mktemp("calibrate")
    for name, shape in (("a", {}), ("b", {"layers": 2, "heads": 8})):
        lm = make_tiny(name=name, **shape)
        lm.model.save_pretrained(folder / name)
        lm.tokenizer.save_pretrained(folder / name)
    detector = fitted(gs.LanguageModel.from_pretrained(folder / "a"))
    detector.threshold_ = Threshold(0.5, 0.5, "the test")
    detector.save_pretrained(folder / "probe")
    fitted(gs.LanguageModel.from_pretrained(folder / "a"), C=5.0).save_pretrained(folder / "other-probe")
    lines = []
    for example in make_examples(60):
        record = example.to_dict()
        lines.append({key: record[key] for key in ("id", "question", "context", "response")})
    declined = {"id": "declined", "question": "q", "context": "c", "response": "I don't know."}
    text = "".join(json.dumps(line) + "\n" for line in [*lines, declined]) + "{broken\n"
    (folder / "answers.jsonl").write_text(text)
    shared = [{**line, "context": ["Bees make honey."]} for line in lines[:30]]
    (folder / "shared.jsonl").write_text("".join(json.dumps(line) + "\n" for line in shared))
    (folder / "few.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines[:20]))
    return folder


def run(*arguments, code=0):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output + done.stderr
    return done


def calibrated(place, output, *more, data="answers.jsonl", model="a", code=0):
    return run("calibrate", place / data, "--detector", place / "probe", "--model", place / model, "-o", output,
               "--assume-faithful", *more, code=code)  # fmt: skip


@pytest.fixture(scope="module")
def profile(place):
    calibrated(place, place / "profile", "--max-false-alarm", 0.1)
    return place / "profile"


def scored(place, *more, code=0):
    return run("score", "--passage", "Bees make honey.", "--response", "Bees stand in Paris.", "--model", place / "a",
               "--detector", place / "probe", "--exit-zero", *more, code=code)  # fmt: skip


def test_what_was_found_is_said_in_a_few_lines(place, profile, tmp_path):
    done = calibrated(place, tmp_path / "p", "--name", "bees")
    lines = done.stdout.splitlines()
    assert lines[0] == "bees: 60 answers without a label, taken as faithful." and len(lines) == 4
    assert "responses from" in lines[1] and "of these answers (before: 0.5," in lines[1]
    assert "at most 10 % of faithful answers are flagged, with 90 % confidence" in lines[-1]
    assert "1 no_answer, 1 lines not readable" in done.stderr and "are about" not in done.stderr
    card = (tmp_path / "p" / "README.md").read_text()
    assert card.startswith("# bees") and {item.name for item in (tmp_path / "p").iterdir()} == {
        "README.md",
        "profile.json",
    }


def test_the_answers_themselves_are_flagged_as_seldom_as_promised(place, profile, tmp_path):
    run("score", place / "answers.jsonl", "--detector", place / "probe", "--model", place / "a", "--profile", profile,
        "-o", tmp_path / "out.jsonl", code=3)  # fmt: skip
    verdicts = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(verdicts) == 61 and {item["profile"] for item in verdicts} == {"profile"}
    assert "the profile 'profile', 60 answers without a label" in verdicts[0]["threshold"]["source"]
    assert sum(bool(item["flagged"]) for item in verdicts) <= 2  # allowed of 60 at 10 % and 90 %
    assert sum(bool(item["spans"]) and not item["flagged"] for item in verdicts) <= 2


def test_json_and_a_store_and_every_way_to_judge(place, profile, tmp_path):
    run("extract", place / "answers.jsonl", "-o", place / "traces", "--model", place / "a", "--detector",
        place / "probe", code=3)  # fmt: skip
    done = run("calibrate", place / "traces", "--detector", place / "probe", "-o", tmp_path / "p", "--format", "json",
               "--assume-faithful")  # fmt: skip
    report = json.loads(done.stdout)
    assert report["used"] == 60 and report["threshold_before"]["response"] == 0.5 and not report["cautions"]
    first = json.loads((profile / "profile.json").read_text())
    assert report["profile"]["threshold"]["response"] == pytest.approx(first["threshold"]["response"], abs=1e-3)
    verdict = json.loads(scored(place, "--profile", profile, "--format", "json").stdout)
    assert verdict["profile"] == "profile" and verdict["threshold"]["response"] == first["threshold"]["response"]
    assert "profile" in scored(place, "--profile", profile / "profile.json").stdout
    done = run("generate", "--passage", "Bees make honey.", "--model", place / "a", "--detector", place / "probe",
               "--profile", profile, "--max-new-tokens", 4, "--format", "json", "--exit-zero")  # fmt: skip
    assert json.loads(done.stdout)["verdict"]["profile"] == "profile"


def test_answers_about_one_context_weaken_the_promise_and_that_is_said(place, tmp_path):
    done = calibrated(place, tmp_path / "p", "--format", "json", data="shared.jsonl")
    report = json.loads(done.stdout)
    assert report["sources"] == 1 and "The 30 answers are about 1 contexts" in report["cautions"][0]
    assert report["cautions"][0] in done.stderr


def test_a_resumed_run_notices_another_profile(place, profile, tmp_path):
    calibrated(place, tmp_path / "p")
    command = ["score", place / "few.jsonl", "--detector", place / "probe", "--model", place / "a", "-o",
               tmp_path / "out.jsonl", "--profile", tmp_path / "p"]  # fmt: skip
    run(*command)
    assert "already complete" in run(*command).stderr
    calibrated(place, tmp_path / "p", "--max-false-alarm", 0.2, "--overwrite")
    assert "profile_sha256" in run(*command, code=2).stderr
    assert "profile_sha256" in run(*command[:-2], code=2).stderr
    run(*command[:-2], "--overwrite")  # and one that is not there is not taken for none
    assert "there is no profile.json" in run(*command[:-1], tmp_path / "nowhere", code=2).stderr


REFUSED = {
    "too few": (["calibrate", "{few}", *(FULL := ["--detector", "{probe}", "--model", "./no", "-o", "{out}"])],
                "from 22 faithful answers on. Got 20"),
    "a promise of 0 %": (["calibrate", "{data}", *FULL, "--max-false-alarm", "0"], "'max_false_alarm'"),
    "a promise of 100 %": (["calibrate", "{data}", *FULL, "--max-false-alarm", "1"], "'max_false_alarm'"),
    "certainty": (["calibrate", "{data}", *FULL, "--confidence", "1"], "'confidence'"),
    "both": (["calibrate", "{data}", *FULL, "--max-false-alarm", ".1", "--precision", ".8"], "either a share"),
    "precision without labels": (["calibrate", "{data}", *FULL, "--precision", ".8"], "Got 60 answers without"),
    "no such file": (["calibrate", "nowhere.jsonl", *FULL], "cannot be read"),
    "another folder": (["calibrate", "{data}", *FULL[:-1], "{probe}"], "is no profile"),
    "a profile that is there": (["calibrate", "{data}", *FULL[:-1], "{profile}"], "Pass --overwrite"),
    "an unknown detector": (["calibrate", "{data}", *FULL, "--detector", "contrasst"], "Did you mean 'contrast'"),
    "one that has not learnt": (["calibrate", "{data}", *FULL, "--detector", "aggtruth"], "must learn before"),
    "nearly all flagged": (["calibrate", "{data}", "--detector", "{strict}", "--model", "{model}", "-o", "{out}"],
                           "hardly the faithful answers"),
    "no sentences": (["calibrate", "{data}", "--detector", "{probe}", "--model", "{model}", "-o", "{out}",
                      "--assume-faithful", "--unit", "sentence"], "judges sentences"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_use_is_refused_in_one_line_and_leaves_nothing(place, profile, tmp_path, case):
    if case == "nearly all flagged":
        detector = gs.Scope(gs.LanguageModel.from_pretrained(place / "a"), str(place / "probe")).detector
        detector.threshold_ = Threshold(-1.0, -1.0, "the test")
        detector.save_pretrained(tmp_path / "strict")
    names = {"few": place / "few.jsonl", "data": place / "answers.jsonl", "probe": place / "probe", "profile": profile,
             "out": tmp_path / "out", "model": place / "a", "strict": tmp_path / "strict"}  # fmt: skip
    arguments, message = REFUSED[case]
    done = run(*(item.format(**names) for item in arguments), code=2)
    assert message in done.stderr and done.stdout == "" and not (tmp_path / "out").exists()
    assert [line for line in done.stderr.splitlines() if message in line]


def test_a_profile_is_refused_where_it_does_not_belong(place, profile, tmp_path):
    assert "other parameters" in scored(place, "--profile", profile, "--detector", place / "other-probe", code=2).stderr
    assert "made for the detector" in scored(place, "--profile", profile, "--detector", "contrast", code=2).stderr
    run("calibrate", place / "answers.jsonl", "--detector", "perplexity", "--model", place / "a", "-o", tmp_path / "p",
        "--assume-faithful")  # fmt: skip
    done = run("score", "--passage", "Bees.", "--response", "Bees stand.", "--detector", "perplexity", "--model",
               place / "b", "--profile", tmp_path / "p", code=2)  # fmt: skip
    assert "does not hold for what" in done.stderr and "weights" in done.stderr
    (tmp_path / "p" / "profile.json").write_text('{"format": 1, "thre')
    assert "is damaged" in scored(place, "--profile", tmp_path / "p", "--model", "./no", code=2).stderr
    assert "there is no profile.json" in scored(place, "--profile", tmp_path / "nowhere", code=2).stderr
    assert "keeps no promise" in scored(place, "--profile", profile, "--threshold", 1, code=2).stderr
    done = scored(place, "--max-false-alarm", 0.05, "--confidence", 0.9, code=2)
    assert "brings no scores of faithful answers along" in done.stderr and "groundscope calibrate" in done.stderr
    assert "goes with max_false_alarm" in scored(place, "--confidence", 0.9, code=2).stderr


@pytest.mark.slow
def test_the_embedded_model_keeps_a_promise_on_the_shipped_sample(groundscope, tmp_path):
    records = [{**item.to_dict(), "hallucinated": False} for item in reference_sample()[:24]]
    (tmp_path / "sample.jsonl").write_text("".join(json.dumps(item) + "\n" for item in records))
    done = groundscope("calibrate", tmp_path / "sample.jsonl", "--max-false-alarm", 0.2, "-o", tmp_path / "p",
                       "--contrast", "pool")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    groundscope("score", tmp_path / "sample.jsonl", "--profile", tmp_path / "p", "--contrast", "pool", "-o",
                tmp_path / "out.jsonl")  # fmt: skip
    verdicts = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    used = sum(item["score"] is not None for item in verdicts)
    allowed = Promise(0.2).allowed(used)
    assert used >= 20 and {item["profile"] for item in verdicts} == {"p"}
    assert sum(bool(item["flagged"]) for item in verdicts) <= allowed
