import json
from pathlib import Path

import numpy as np
import pytest
from saved import fitted

import groundscope as gs
from groundscope.detectors.learnable import LearnedDetector
from groundscope.detectors.registry import from_name
from groundscope.detectors.saved.folder import ARRAYS, CARD, CONFIG, load_detector, resolve_detector, save_detector
from groundscope.errors import InputError, MismatchError, PrerequisiteError, UnknownNameError
from groundscope.verdict import Threshold


@pytest.fixture(scope="module")
def detector(tiny):
    return fitted(tiny)


def test_a_loaded_detector_is_the_one_that_was_saved(detector, tmp_path):
    detector.threshold_ = Threshold(0.4, 0.6, "a test", 0.2, 0.7, 0.5)
    save_detector(detector, tmp_path / "d", "# card\n")
    assert {path.name for path in (tmp_path / "d").iterdir()} == {CONFIG, ARRAYS, CARD}
    assert len({path.stat().st_mode for path in (tmp_path / "d").iterdir()}) == 1  # whoever reads one reads all
    got = load_detector(tmp_path / "d")
    assert type(got) is type(detector) and got.get_params() == detector.get_params()
    assert got.threshold_ == detector.threshold_ and got.trained_on_ == detector.trained_on_
    assert got.fingerprint_ == json.loads(json.dumps(detector.fingerprint_))
    for name, array in detector.state()[0].items():
        np.testing.assert_array_equal(got.state()[0][name], array)
    assert (tmp_path / "d" / CARD).read_text() == "# card\n"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_nothing_in_the_folder_can_run(detector, tmp_path):
    save_detector(detector, tmp_path / "d")
    for path in (tmp_path / "d").iterdir():
        raw = path.read_bytes()
        assert not raw.startswith((b"\x80", b"PK")) and b"pickle" not in raw and b"__reduce__" not in raw


def test_saving_again_replaces_a_detector_and_nothing_else(detector, tmp_path):
    save_detector(detector, tmp_path / "d", "one")
    save_detector(detector, tmp_path / "d", "two")
    assert (tmp_path / "d" / CARD).read_text() == "two"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years")
    with pytest.raises(InputError, match="no saved detector"):
        save_detector(detector, tmp_path / "mine")
    (tmp_path / "d" / "thesis.tex").write_text("years")
    with pytest.raises(InputError, match=r"'thesis\.tex', which is no part of a saved detector and would be lost"):
        save_detector(detector, tmp_path / "d", "three")
    for place in (tmp_path / "mine", tmp_path / "d"):
        assert (place / "thesis.tex").read_text() == "years"


def test_its_json_is_made_once(detector, tmp_path, monkeypatch):
    dumps, made = json.dumps, []
    monkeypatch.setattr(json, "dumps", lambda *a, **k: made.append(a) or dumps(*a, **k))
    save_detector(detector, tmp_path / "d")
    assert len(made) == 1


@pytest.mark.parametrize("change", [np.int8, lambda array: array * 2], ids=["type", "values"])
def test_arrays_of_another_save_are_damage(detector, tmp_path, change):
    from safetensors.numpy import load_file, save_file

    save_detector(detector, tmp_path / "d")
    arrays = load_file(tmp_path / "d" / ARRAYS)
    save_file({name: np.asarray(change(array)) for name, array in arrays.items()}, tmp_path / "d" / ARRAYS)
    with pytest.raises(InputError, match=r"damaged: detector\.safetensors is not what was saved"):
        load_detector(tmp_path / "d")


def test_a_failure_leaves_the_old_one(detector, tmp_path, monkeypatch):
    save_detector(detector, tmp_path / "d", "old")

    def full(*_a, **_k):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(PrerequisiteError, match="No space left"):
        save_detector(detector, tmp_path / "d", "new")
    assert (tmp_path / "d" / CARD).read_text() == "old" and load_detector(tmp_path / "d").is_fitted
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


def test_an_unfitted_detector_is_neither_saved_nor_used(tiny, tmp_path):
    with pytest.raises(PrerequisiteError, match="must learn before it scores"):
        save_detector(from_name("lookback-lens"), tmp_path / "d")
    with pytest.raises(PrerequisiteError, match="groundscope train lookback-lens"):
        gs.Scope(tiny, "lookback-lens")
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: (d / CONFIG).unlink(), "lacks detector.json"),
        (lambda d: (d / ARRAYS).unlink(), "lacks detector.safetensors"),
        (lambda d: (d / CONFIG).write_text("{"), "damaged"),
        (lambda d: (d / CONFIG).write_text("[]"), "format"),
        (lambda d: (d / ARRAYS).write_bytes((d / ARRAYS).read_bytes()[:40]), "damaged"),
        (lambda d: _edit(d, format=99), "format 99"),
        (lambda d: _edit(d, params={"nonsense": 1}), "nonsense"),
        (lambda d: _edit(d, facts={}), "damaged"),
        (lambda d: _edit(d, fingerprint=None), "damaged"),
        (lambda d: _edit(d, threshold={"x": 1}), "damaged"),
        (lambda d: _edit(d, threshold={"response": "x", "span": 1.0, "source": ""}), "damaged.*threshold"),
        (lambda d: _edit(d, threshold={"response": None, "span": None, "source": "s"}), "damaged.*threshold"),
        (lambda d: _edit(d, threshold={"response": float("nan"), "span": 1.0, "source": "s"}), "damaged.*NaN"),
        (lambda d: _edit(d, threshold={"response": 0.5, "span": float("inf"), "source": "s"}), "damaged.*Infinity"),
        (lambda d: _edit(d, facts={"beta": float("nan")}), "damaged.*NaN"),
        (lambda d: _edit(d, threshold={"response": 0.5, "span": 1.0, "source": 3}), "damaged.*threshold"),
        (lambda d: _edit(d, threshold=_line(sentence="x")), "damaged.*threshold"),
        (lambda d: _edit(d, threshold=_line(response_probability=1.5)), "damaged.*threshold"),
        (lambda d: _edit(d, trained_on="abc"), "damaged.*trained_on"),
        (lambda d: _edit(d, trained_on=[1, None]), "damaged.*trained_on"),
        (lambda d: _edit(d, fingerprint=[]), "damaged.*fingerprint"),
        (lambda d: _edit(d, fingerprint={"model": 3}), "damaged.*fingerprint"),
        (lambda d: _edit(d, params=3), "damaged"),
        (lambda d: (d / CONFIG).write_text("[" * 100_000), "damaged"),
        (lambda d: _hold_bfloat16(d / ARRAYS), "damaged"),
        (lambda d: _edit(d, detector="lookback-lenss"), "Did you mean 'lookback-lens'"),
        (lambda d: _edit(d, detector="contrast", params={}), "does not learn"),
    ],
)
def test_a_damaged_folder_is_refused(detector, tmp_path, damage, message):
    save_detector(detector, tmp_path / "d")
    damage(tmp_path / "d")
    with pytest.raises(InputError, match=message):
        load_detector(tmp_path / "d")


def _line(**changes):
    return {"response": 0.5, "span": 1.0, "source": "s"} | changes


def _hold_bfloat16(path):
    import torch
    from safetensors.torch import save_file as save_tensors

    save_tensors({"coef": torch.zeros(12, dtype=torch.bfloat16)}, path)


def _edit(folder, **changes):
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | changes))


def test_another_model_or_template_is_refused(detector, tiny, make_tiny, tmp_path):
    save_detector(detector, tmp_path / "d")
    path = str(tmp_path / "d")
    copy = make_tiny(name="a copy under another name")
    assert gs.Scope(copy, path).detector.is_fitted
    with pytest.raises(MismatchError, match="heads was 4, is 8"):
        gs.Scope(make_tiny(name="x", heads=8), path)
    with pytest.raises(MismatchError, match="template"):
        gs.Scope(tiny, path, template=gs.PromptTemplate(system="Be brief."))
    other = make_tiny(name="y")
    next(other.model.parameters()).data.mul_(1.5)
    with pytest.raises(MismatchError, match="weights"):
        gs.Scope(other, path)


def test_names_win_over_folders(detector, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_detector(detector, tmp_path / "entropy")
    assert not isinstance(resolve_detector("entropy"), LearnedDetector)
    assert resolve_detector("./entropy").is_fitted
    with pytest.raises(UnknownNameError, match="Did you mean 'entropy'"):
        resolve_detector("entropyy")


def test_a_class_loads_only_its_own(detector, tmp_path):
    save_detector(detector, tmp_path / "d")
    assert type(detector).from_pretrained(tmp_path / "d").is_fitted
    with pytest.raises(InputError, match="no AggTruth"):
        type(from_name("aggtruth")).from_pretrained(tmp_path / "d")


@pytest.mark.parametrize("learnt", [np.array([object()]), np.array(["text"]), "no array", None])
def test_what_is_no_plain_array_is_refused_and_leaves_nothing(detector, tmp_path, monkeypatch, learnt):
    facts = detector.state()[1]
    monkeypatch.setattr(type(detector), "state", lambda _: ({"coef": learnt}, facts))
    with pytest.raises(InputError, match="cannot be written as plain arrays"):
        save_detector(detector, tmp_path / "d")
    assert list(tmp_path.iterdir()) == []


def test_a_rename_that_fails_brings_the_old_one_back(detector, tmp_path, monkeypatch):
    save_detector(detector, tmp_path / "d", "old")
    rename = type(tmp_path).rename

    def failing(path, target):
        if path.name.startswith(".d.") and path.name != ".d.old":
            raise OSError(5, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(type(tmp_path), "rename", failing)
    with pytest.raises(PrerequisiteError, match="Input/output"):
        save_detector(detector, tmp_path / "d", "new")
    assert (tmp_path / "d" / CARD).read_text() == "old" and [path.name for path in tmp_path.iterdir()] == ["d"]


def test_what_a_killed_run_left_is_no_obstacle(detector, tmp_path):
    save_detector(detector, tmp_path / "d", "old")
    (tmp_path / "d").rename(tmp_path / ".d.old")
    for text in ("new", "newer"):
        save_detector(detector, tmp_path / "d", text)
        assert (tmp_path / "d" / CARD).read_text() == text
    (tmp_path / ".d.old").mkdir()
    (tmp_path / ".d.old" / CONFIG).write_text("left over")
    save_detector(detector, tmp_path / "d", "newest")
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


def test_a_name_may_bring_its_parameters():
    detector = resolve_detector("lumina:weight=0.25,calibration=none")
    assert detector.weight == 0.25 and detector.calibration == "none"
    assert resolve_detector("nli:model=a/b").get_params()["model"] == "a/b"
    for wrong, message in (("lumina:weight", "NAME=VALUE"), ("lumina:wait=1", "Its parameters"), ("lumina:", "NAME=")):
        with pytest.raises(InputError, match=message):
            resolve_detector(wrong)
