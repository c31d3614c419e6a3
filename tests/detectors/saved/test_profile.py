"""A profile comes back as it was written, and is refused where it does not belong."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from saved import fitted

from groundscope.detectors.registry import from_name
from groundscope.detectors.saved.folder import load_detector, save_detector
from groundscope.detectors.saved.profile import (
    CARD,
    PROFILE,
    Profile,
    detector_sha256,
    load_profile,
    save_profile,
    with_lines,
)
from groundscope.errors import InputError, MismatchError, PrerequisiteError
from groundscope.learn.calibration_scores import CalibrationScores
from groundscope.learn.goal import Goal
from groundscope.verdict import Threshold

CONTRAST = from_name("contrast")


def profile(detector=CONTRAST, **changes) -> Profile:
    fields = {
        "name": "tickets",
        "detector": detector.name,
        "detector_sha256": detector_sha256(detector),
        "fingerprint": {"model": "tiny", "weights": "abc", "attention_layers": [0, 1]},
        "threshold": Threshold(0.25, 0.5, "the profile 'tickets'", 0.125, 0.75, 0.5),
        "goal": Goal(0.05),
        "unlabelled": 96,
        "faithful": 4,
    }
    return Profile(**{**fields, **changes})


def test_a_loaded_profile_is_the_one_that_was_saved(tmp_path):
    given = profile(unmet=("span",), goal=Goal(precision=0.8, unit="sentence"))
    save_profile(given, tmp_path / "deep" / "p")
    assert load_profile(tmp_path / "deep" / "p") == given == load_profile(tmp_path / "deep" / "p" / PROFILE)
    assert {path.name for path in (tmp_path / "deep" / "p").iterdir()} == {PROFILE, CARD}
    card = (tmp_path / "deep" / "p" / CARD).read_text(encoding="utf-8")
    assert "at least 80 %" in card and "No line for span" in card and "`contrast`" in card
    assert not [path for path in (tmp_path / "deep").iterdir() if path.name.startswith(".")]


def test_a_profile_is_replaced_only_if_asked_and_nothing_else_ever(tmp_path):
    save_profile(profile(), tmp_path / "p")
    with pytest.raises(InputError, match="Pass --overwrite"):
        save_profile(profile(name="other"), tmp_path / "p")
    save_profile(profile(name="other"), tmp_path / "p", overwrite=True)
    assert load_profile(tmp_path / "p").name == "other"
    (tmp_path / "p" / "thesis.tex").write_text("years")
    with pytest.raises(InputError, match=r"holds 'thesis\.tex', which is no part of a profile"):
        save_profile(profile(), tmp_path / "p", overwrite=True)
    assert (tmp_path / "p" / "thesis.tex").read_text() == "years"


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    save_profile(profile(), tmp_path / "p")
    monkeypatch.setattr("groundscope.detectors.saved.profile._card", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save_profile(profile(name="other"), tmp_path / "p", overwrite=True)
    assert load_profile(tmp_path / "p").name == "tickets"
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


def _damage(change):
    def apply(folder):
        record = json.loads((folder / PROFILE).read_text())
        change(record)
        (folder / PROFILE).write_text(json.dumps(record))

    return apply


DAMAGE = {
    "cut off": (lambda f: (f / PROFILE).write_text((f / PROFILE).read_text()[:-40]), "is damaged"),
    "empty": (lambda f: (f / PROFILE).write_text(""), "is damaged"),
    "no JSON": (lambda f: (f / PROFILE).write_bytes(b"\x80\x04pickle"), "is damaged"),
    "a list": (lambda f: (f / PROFILE).write_text("[]"), "format 1 is read"),
    "deep": (lambda f: (f / PROFILE).write_text("[" * 100_000), "is damaged"),
    "another format": (_damage(lambda r: r.update(format=2)), "Got 2 instead"),
    "a NaN": (_damage(lambda r: r["threshold"].update(response=float("nan"))), "holds NaN"),
    "a text for a number": (_damage(lambda r: r["threshold"].update(response="0.5")), "finite numbers"),
    "no threshold": (_damage(lambda r: r.pop("threshold")), "missing or of the wrong kind"),
    "no goal": (_damage(lambda r: r.update(goal=None)), "missing or of the wrong kind"),
    "a promise of nothing": (_damage(lambda r: r["goal"].update(max_false_alarm=0.0)), "'max_false_alarm'"),
    "a field too many": (_damage(lambda r: r.update(code="rm")), "missing or of the wrong kind"),
    "no model": (_damage(lambda r: r.update(fingerprint={})), "must name its model"),
    "a negative count": (_damage(lambda r: r.update(unlabelled=-1)), "'unlabelled'"),
    "no name": (_damage(lambda r: r.update(name="")), "'name'"),
    "an unknown line": (_damage(lambda r: r.update(unmet=["word"])), "'unmet'"),
    "no file": (lambda f: (f / PROFILE).unlink(), "there is no profile.json"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_told_in_one_line(tmp_path, case):
    save_profile(profile(), tmp_path / "p")
    damage, message = DAMAGE[case]
    damage(tmp_path / "p")
    with pytest.raises(InputError, match=message) as told:
        load_profile(tmp_path / "p")
    assert "groundscope calibrate" in str(told.value) and "\n" not in str(told.value)


@pytest.mark.parametrize("place", ["nowhere", "file/p"])
def test_a_place_without_a_profile(tmp_path, place):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is no profile"):
        load_profile(tmp_path / place)


@pytest.mark.skipif(getattr(os, "geteuid", lambda: 0)() == 0, reason="the administrator may read everything")
def test_a_profile_that_may_not_be_read(tmp_path):
    save_profile(profile(), tmp_path / "p")
    (tmp_path / "p" / PROFILE).chmod(0)
    with pytest.raises(InputError, match="Permission denied"):
        load_profile(tmp_path / "p")


def test_it_is_refused_for_another_detector_version_or_model():
    with pytest.raises(MismatchError, match=r"made for the detector 'contrast'\. Got 'perplexity'"):
        profile().applied(from_name("perplexity"))
    with pytest.raises(MismatchError, match="other parameters"):
        profile(detector_sha256="0").applied(CONTRAST)
    with pytest.raises(MismatchError, match=r"made with groundscope 9\.9\.1"):
        profile(groundscope="9.9.1").applied(CONTRAST)
    mine = profile()
    mine.check_reader({"model": "a copy", "weights": "abc", "attention_layers": (0, 1)})
    for name, value in (("weights", "abd"), ("template", "t")):
        with pytest.raises(MismatchError, match=name):
            mine.check_reader({"model": "tiny", "weights": "abc", "attention_layers": [0, 1], name: value})


def test_applied_it_draws_the_lines_of_a_copy():
    detector = from_name("contrast")
    judged = profile().applied(detector)
    assert judged.threshold_ == profile().threshold and judged.profile_ == "tickets"
    assert not hasattr(detector, "threshold_") and detector.profile_ == ""


def test_the_digest_is_of_what_decides_scores(tiny, tmp_path):
    detector = fitted(tiny)
    digest = detector_sha256(detector)
    save_detector(detector, tmp_path / "d")
    loaded = load_detector(tmp_path / "d")
    loaded.threshold_ = Threshold(1.0, 1.0, "moved")  # lines are not what scores come from
    assert detector_sha256(loaded) == digest
    assert detector_sha256(fitted(tiny, C=5.0)) != digest
    arrays, facts = loaded.state()
    loaded.restore({name: array * 2 for name, array in arrays.items()}, facts)
    assert detector_sha256(loaded) != digest


def test_lines_come_from_one_place():
    detector = from_name("contrast")
    assert with_lines(detector) == (detector, None)
    with pytest.raises(PrerequisiteError, match="groundscope calibrate"):
        with_lines(detector, max_false_alarm=0.05)
    with pytest.raises(InputError, match="goes with max_false_alarm"):
        with_lines(detector, confidence=0.9)
    with pytest.raises(InputError, match="not both"):
        with_lines(detector, profile(), 0.05)
    with pytest.raises(InputError, match="Profile or its folder"):
        with_lines(detector, 3)
    detector.calibration_ = CalibrationScores(np.arange(60.0), np.arange(60.0), [], [])
    judged, none = with_lines(detector, max_false_alarm=0.05, confidence=0.9)
    assert none is None and "at most 5 %" in judged.threshold_.source and not hasattr(detector, "threshold_")
    with pytest.raises(InputError, match=r"from 90 faithful answers on\. Got 60"):
        with_lines(detector, max_false_alarm=0.05, confidence=0.99)
    with pytest.raises(InputError, match="between 0 and 1"):
        with_lines(detector, max_false_alarm=0.0)
