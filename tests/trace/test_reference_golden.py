"""The naive reference against values worked out elsewhere: by hand, and on the embedded model."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from reference import SIGNALS, VOCAB, build, run, signals

# Without this folder there is nothing to learn: the values in tests/golden are the reference's own.
GOLDEN = os.environ.get("GROUNDSCOPE_GOLDEN")
EXAMPLES = sorted(Path(GOLDEN).glob("smollm2_*.npz")) if GOLDEN else []
MODEL = os.environ.get("GROUNDSCOPE_TEST_MODEL", "")

# Keys: BOS, p1, p2, p3, q, marker, self.
HAND = np.array([[0.40, 0.10, 0.20, 0.05, 0.05, 0.05, 0.15], [0.10, 0.30, 0.10, 0.20, 0.05, 0.05, 0.20]])
PASSAGE = HAND[:, 1:4]


def test_lookback_ratio_by_hand():
    ratios = [signals.lookback_ratio(row, [0, 1, 2, 3, 4], [5, 6]) for row in HAND]
    np.testing.assert_allclose(ratios, [0.615385, 0.545455], atol=1e-6)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aggtruth_sum", [0.35, 0.60]),
        ("aggtruth_cosine", [0.699854, 0.699854]),
        ("aggtruth_entropy", [1.416642, 1.846439]),
        ("aggtruth_js", [0.148052, 0.127094]),
    ],
)
def test_aggtruth_by_hand(name, expected):
    np.testing.assert_allclose(getattr(signals, name)(PASSAGE), expected, atol=1e-6)


def test_borders_of_the_definitions():
    row = np.array([0.0, 0.0, 0.0, 1.0])
    assert signals.lookback_ratio(row, [0, 1, 2, 3], []) == 1.0
    assert signals.lookback_ratio(row, [0, 1], [2]) == 0.0
    assert signals.lookback_ratio(row, [0, 1], [3]) == 0.0
    assert signals.lookback_ratio(row, [3], [2]) == 1.0
    none = np.zeros((3, 2))
    assert (signals.aggtruth_cosine(none) == 0).all()
    assert (signals.aggtruth_entropy(none) == 0).all()
    assert (signals.aggtruth_js(none) == 0).all()
    over = np.array([[0.7, 0.3 + 1e-9], [0.5, 0.5]])  # sums a little above 1
    assert np.isfinite(signals.aggtruth_js(over)).all()


def test_jensen_shannon_bounds():
    one_hot = np.eye(3)
    np.testing.assert_allclose(signals.jensen_shannon(one_hot[0], one_hot[1]), np.log(2))
    assert signals.jensen_shannon(one_hot[0], one_hot[0]) == 0


def test_mmd_of_two_certain_words():
    unit = signals.unit_rows(np.array([[2.0, 0.0], [3.0, 3.0], [0.0, -1.0]]))
    one_hot = np.eye(3)
    np.testing.assert_allclose(signals.mmd(one_hot[0], one_hot[1], unit), 1 - np.sqrt(0.5))
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.2, 0.7])
    kernel = (1 + unit @ unit.T) / 2
    np.testing.assert_allclose(signals.mmd(p, q, unit), p @ kernel @ p + q @ kernel @ q - 2 * p @ kernel @ q)


def test_information_processing_rate_by_hand():
    lens = np.array([[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.0, 0.0], [0.8, 0.1, 0.05, 0.05]])
    above = 1 * (1 - 0.25 / 0.8) + 2 * (1 - 0.5 / 0.8)
    below = 1 / np.log(4) + 2 / np.log(2)
    np.testing.assert_allclose(signals.information_processing_rate(lens), above / below)
    certain = np.array([[0.0, 1.0], [0.6, 0.4]])
    assert signals.information_processing_rate(certain) == 0.0


def test_external_context_score_picks_the_most_attended_tenth():
    states = np.random.default_rng(0).normal(size=(40, 6))
    row = np.linspace(0.05, 0.0, 40)
    passage = list(range(5, 34))  # 29 tokens: the top 2 are 5 and 6
    score, gap = signals.external_context_score(row, passage, states, 35)
    mean = states[[5, 6]].mean(axis=0)
    np.testing.assert_allclose(score, mean @ states[35] / np.linalg.norm(mean) / np.linalg.norm(states[35]))
    np.testing.assert_allclose(gap, (row[6] - row[7]) / row[6])
    few, _ = signals.external_context_score(row, [8, 9], states, 35)
    np.testing.assert_allclose(few, states[8] @ states[35] / np.linalg.norm(states[8]) / np.linalg.norm(states[35]))


def test_passage_percentage_by_window_midpoint():
    prompt = [1 + i % (VOCAB - 1) for i in range(100)]
    result = run(build("llama"), prompt, list(range(5, 16)), [(10, 50)], (97, 100))
    assert result["passage_percentage"][7] == pytest.approx(0.3738, abs=5e-5)
    assert "mmd" not in result


def test_without_a_header_the_first_token_has_looked_back_only():
    prompt = [1 + i % (VOCAB - 1) for i in range(20)]
    result = run(build("llama"), prompt, [5, 6, 7], [(3, 9), (11, 15)], (20, 20))
    assert (result["lookback_ratio"][0] == 1).all()
    assert (result["lookback_ratio_passages"][0] == 1).all()
    assert (result["lookback_ratio"][1] < 1).all()


@pytest.fixture(scope="module")
def embedded():
    if not (Path(MODEL) / "config.json").is_file():
        pytest.skip("GROUNDSCOPE_TEST_MODEL is not the folder of the converted embedded model")
    transformers = pytest.importorskip("transformers")
    return transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype="float32")


@pytest.mark.slow
@pytest.mark.skipif(
    not EXAMPLES or not MODEL, reason="no GROUNDSCOPE_GOLDEN with others' values, or no GROUNDSCOPE_TEST_MODEL"
)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_reference_equals_golden_values(embedded, path):
    golden = np.load(path, allow_pickle=False)
    prompt, response, contrast = (golden[key].tolist() for key in ("prompt_ids", "response_ids", "contrast_prompt_ids"))
    passage, header = tuple(golden["passage"].tolist()), tuple(golden["header"].tolist())
    result = run(embedded, prompt, response, [passage], header, contrast)
    for name in SIGNALS:
        if name == "passage_attention":
            np.testing.assert_allclose(result[name][:, 0], golden["aggtruth_sum"].mean(axis=(1, 2)), rtol=1e-4)
            continue
        keep = np.ones(golden[name].shape, dtype=bool)
        if name == "external_context_score":
            keep = result["external_context_score_gap"] > 1e-5
            assert keep.mean() > 0.99
        atol = 2e-3 if name.startswith("information_processing_rate") else 1e-6
        np.testing.assert_allclose(result[name][keep], golden[name][keep], rtol=1e-4, atol=atol, err_msg=name)
