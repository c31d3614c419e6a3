"""Released Lookback Lens classifiers are read, and nothing else that comes as a pickle is."""

from __future__ import annotations

import os
import pickle
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

import groundscope as gs
from groundscope.detectors.saved.folder import load_detector
from groundscope.detectors.saved.released import import_lookback_lens
from groundscope.errors import InputError, MismatchError, PrerequisiteError

FEATURES = 32 * 32
GOLDEN = "lookback_lens_llama2_7b_cnndm_sliding_window_8.pkl"


@pytest.fixture(scope="module")
def classifier():
    rng = np.random.default_rng(3)
    X, y = rng.random((60, FEATURES)), np.arange(60) % 2
    return LogisticRegression(max_iter=200).fit(X, y), X


@pytest.fixture
def write(tmp_path):
    def put(value: object, protocol: int = 4) -> Path:
        path = tmp_path / "classifier.pkl"
        path.write_bytes(value if isinstance(value, bytes) else pickle.dumps(value, protocol=protocol))
        return path

    return put


def refused(path: Path, reason: str = "") -> None:
    with pytest.raises(InputError, match=rf"not a classifier released for Lookback Lens: .*{reason}.*Nothing of it"):
        import_lookback_lens(path)


def trace_of(values: np.ndarray) -> gs.Trace:
    layout = gs.Layout.from_ids([1, 2], range(3, 3 + len(values)))
    return gs.Trace(layout, {"lookback_ratio": values.astype(np.float32)})


@pytest.mark.parametrize("protocol", [3, 4])
def test_what_is_read_scores_as_the_classifier_does_with_the_polarity_turned(classifier, write, protocol):
    model, X = classifier
    detector = import_lookback_lens(write({"clf": model, "best_threshold": np.float64(0.7)}, protocol))
    ratios = X[:12].astype(np.float32).reshape(12, 32, 32)
    scores = detector.token_scores(trace_of(ratios))
    windows = np.stack([ratios[start : start + 8].reshape(8, -1).mean(axis=0) for start in range(5)])
    factual = model.predict_proba(windows)[:, 1]
    want = [np.mean([1 - factual[w] for w in range(5) if w <= t < w + 8]) for t in range(12)]
    np.testing.assert_allclose(scores, want, rtol=1e-6)
    assert (detector.variant, detector.window_size, detector.units) == ("official", 8, "window")
    assert detector.threshold_.response == pytest.approx(0.3) and "authors" in detector.threshold_.source


def test_a_plain_threshold_will_do(classifier, write):
    detector = import_lookback_lens(write({"clf": classifier[0], "best_threshold": 0.25}))
    assert detector.threshold_.span == 0.75


def test_another_shape_is_refused_when_reading_and_when_scoring(classifier, write, tmp_path):
    detector = import_lookback_lens(write({"clf": classifier[0], "best_threshold": 0.5}))
    with pytest.raises(InputError, match="32 layers of 32 heads and this trace has 3 layers of 4 heads"):
        detector.token_scores(trace_of(np.zeros((9, 3, 4))))
    loaded = load_detector(detector.save_pretrained(tmp_path / "saved"))
    llama = {**detector.fingerprint_, "weights": "abc", "tokenizer": "def", "template": "ghi", "model": "./copy"}
    loaded.check_reader(llama)
    for other in ({"heads": 9}, {"layers": 30}, {"architecture": "GPT2LMHeadModel"}):
        with pytest.raises(MismatchError):
            loaded.check_reader({**llama, **other})
    scored = [one.token_scores(trace_of(np.full((9, 32, 32), 0.5))) for one in (loaded, detector)]
    np.testing.assert_array_equal(*scored)


def test_the_file_that_the_authors_released():
    folder = os.environ.get("GROUNDSCOPE_GOLDEN")
    if not folder:
        pytest.skip("GROUNDSCOPE_GOLDEN does not name the folder with the released classifier")
    detector = import_lookback_lens(Path(folder) / GOLDEN)
    factual = -detector.probe_.coef_.reshape(32, 32)
    assert detector.probe_.intercept_ == pytest.approx(-0.058, abs=5e-4)
    assert detector.threshold_.response == pytest.approx(1 - 0.912, abs=5e-4)
    largest = np.argsort(-factual, axis=None)[:3]
    assert [divmod(int(index), 32) for index in largest] == [(15, 26), (18, 28), (29, 30)]
    np.testing.assert_allclose(factual.ravel()[largest], [3.14, 2.90, 2.77], atol=5e-3)


class Runs:
    """Pickled, it is a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def _target() -> str:
    return f"touch {os.environ['PWNED']}"


ATTACKS = {
    "system": lambda: Runs(os.system, _target()),
    "eval": lambda: Runs(eval, f"__import__('os').system({_target()!r})"),
    "getattr": lambda: Runs(getattr, Runs(__import__, "os"), "system"),
    "nested": lambda: {"clf": Runs(os.system, _target()), "best_threshold": 0.5},
    "in a threshold": lambda: {"clf": LogisticRegression(), "best_threshold": Runs(os.system, _target())},
    "open": lambda: Runs(open, os.environ["PWNED"], "w"),
    "numpy loads": lambda: Runs(np.load, os.environ["PWNED"]),
    "numpy evaluates": lambda: Runs(np.testing.rundocs, os.environ["PWNED"]),
    "object array": lambda: np.array([Runs(os.system, _target())], dtype=object),
    "partial": lambda: Runs(__import__("functools").partial, os.system, _target()),
}


@pytest.mark.parametrize("name", list(ATTACKS))
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_programs_are_not_run(name, protocol, write, tmp_path, monkeypatch):
    pwned = tmp_path / "pwned"
    monkeypatch.setenv("PWNED", str(pwned))
    refused(write(ATTACKS[name](), protocol))
    assert not pwned.exists()


def test_the_attacks_would_work(write, tmp_path, monkeypatch):
    # Otherwise the test above could not fail.
    monkeypatch.setenv("PWNED", str(tmp_path / "pwned"))
    pickle.loads(write(ATTACKS["nested"]()).read_bytes())
    assert (tmp_path / "pwned").exists()


def _global(module: str, name: str) -> bytes:
    return b"".join(b"\x8c" + bytes([len(part)]) + part.encode() for part in (module, name)) + b"\x93"


@pytest.mark.parametrize(
    "body",
    [
        # Attributes of what is admitted, by a dotted name.
        _global("numpy.core.multiarray", "_reconstruct.__globals__"),
        _global("sklearn.linear_model._logistic", "LogisticRegression.__init__.__globals__"),
        _global("numpy", "ndarray.__class__"),
        # A call of what is admitted, with a state or arguments that are none.
        _global("numpy", "dtype") + b"\x8c\x01O\x85R",
        _global("numpy.core.multiarray", "scalar") + b")R",
        _global("sklearn.linear_model._logistic", "LogisticRegression") + b")R}b",
        # A state for the class itself, not for something made of it.
        _global("sklearn.linear_model._logistic", "LogisticRegression") + b"}b",
        # A call of what was made by a call.
        _global("numpy", "ndarray") + b")R)R",
        # Instructions for extensions, persistent ids, instances, buffers.
        b"\x82\x01",
        b"Pid\n",
        b"U\x01x\x51",
        b"(cos\nsystem\no",
        b"(S'true'\nios\nsystem\n",
        b"\x97",
        # Stack tricks.
        b"(0N",
        b"}(\x8c\x01au",
        b"}(K\x01K\x02u",
        b"h\x05",
        b"R",
        b"b",
        b"(",
        b"}}",
        b"",
    ],
)
def test_hand_made_programs_are_refused(body, write):
    refused(write(b"\x80\x04" + body + b"."))


def test_memory_and_time_are_bounded(write, classifier):
    refused(write(b"\x80\x04" + b"N0" * 20_000 + b"."), "more than 10000 instructions|POP")
    refused(write(b"\x80\x04" + b"N" * 20_000 + b"."), "more than 10000 instructions")
    refused(write(b"\x80\x04" + bytes(5 * 2**20)), "more than 4194304")
    # A length that the file does not have.
    refused(write(b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"."))
    refused(write(b"\x80\x04B" + struct.pack("<I", 2**31) + b"."))
    # A number of a million digits.
    refused(write(b"I" + b"9" * 1_000_000 + b"\n."))


def _changed(classifier, **changes) -> dict:
    model = pickle.loads(pickle.dumps(classifier[0]))
    for name, value in changes.items():
        setattr(model, name, value)
    return {"clf": model, "best_threshold": 0.5}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"coef_": np.zeros((1, 100))}, r"'coef_' is no array of the shape \(1, 1024\)"),
        ({"coef_": np.zeros((2, FEATURES))}, "shape"),
        ({"coef_": np.zeros(FEATURES)}, "shape"),
        ({"coef_": [[0.0] * FEATURES]}, "instruction EMPTY_LIST"),
        ({"coef_": np.full((1, FEATURES), np.nan)}, "not finite"),
        ({"coef_": np.zeros((1, FEATURES), dtype=">f8")}, "little-endian"),
        ({"coef_": np.zeros((1, FEATURES), dtype="c16")}, "plain numbers"),
        ({"intercept_": np.array([np.inf])}, "not finite"),
        ({"intercept_": 0.5}, "no array"),
        ({"classes_": np.array([1, 0])}, r"classes are \[1, 0\]"),
        ({"classes_": np.array([0, 1, 2])}, "shape"),
        ({"classes_": np.array(["a", "b"])}, "plain numbers"),
    ],
)
def test_other_classifiers_are_refused(classifier, write, changes, reason):
    refused(write(_changed(classifier, **changes)), reason)


@pytest.mark.parametrize("threshold", [1.5, float("nan"), "0.5", None, True, np.int64(1), np.zeros(3)])
def test_other_thresholds_are_refused(classifier, write, threshold):
    refused(write({"clf": classifier[0], "best_threshold": threshold}), "best_threshold")


def test_other_contents_are_refused(classifier, write):
    refused(write({"clf": classifier[0]}), "'clf' and 'best_threshold'")
    refused(write({"clf": 3.0, "best_threshold": 0.5}), "no logistic regression")
    refused(write({"clf": LogisticRegression(), "best_threshold": 0.5}), "not fitted")
    refused(write(classifier[0]), "'clf'")
    refused(write(b""), "no pickle, or a damaged one")
    refused(write(b"PK\x03\x04 a zip"))
    with pytest.raises(PrerequisiteError, match="cannot be read"):
        import_lookback_lens("/nowhere/at/all.pkl")


@pytest.fixture(scope="module")
def whole(classifier) -> bytes:
    return pickle.dumps({"clf": classifier[0], "best_threshold": np.float64(0.5)}, protocol=4)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damaged_files_are_refused_or_read_but_never_crash(whole, data, tmp_path_factory):
    path = tmp_path_factory.mktemp("damaged") / "x.pkl"
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        # Most of the file is numbers; aim at the instructions around them.
        place = data.draw(st.one_of(st.integers(0, 700), st.integers(len(whole) - 250, len(whole) - 1)))
        damaged[place] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(damaged[: data.draw(st.sampled_from([len(whole), len(whole) // 2]))]))
    try:
        detector = import_lookback_lens(path)
    except InputError:
        return
    assert np.isfinite(detector.probe_.coef_).all() and detector.shape_ == (32, 32)


def test_no_object_of_the_file_is_made(classifier, write, monkeypatch):
    """Neither ``pickle`` nor scikit-learn nor numpy's reconstruction takes part."""
    path = write({"clf": classifier[0], "best_threshold": np.float64(0.5)})

    def forbidden(*_args, **_kwargs):
        raise AssertionError("something of the file was made")

    monkeypatch.setattr(pickle, "loads", forbidden)
    monkeypatch.setattr(pickle, "Unpickler", forbidden)
    monkeypatch.setattr(LogisticRegression, "__setstate__", forbidden)
    monkeypatch.setattr(LogisticRegression, "__init__", forbidden)
    seen = []
    sys.setprofile(lambda frame, event, argument: seen.append(argument) if event == "c_call" else None)
    try:
        import_lookback_lens(path)
    finally:
        sys.setprofile(None)
    assert len(seen) > 100
    assert not [call for call in seen if getattr(call, "__name__", "") in ("_reconstruct", "scalar", "__setstate__")]
