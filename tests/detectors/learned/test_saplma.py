"""SAPLMA's form: a network on the state of the last token."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from synthetic import traced

from groundscope.detectors.learned.hidden_state import Saplma
from groundscope.errors import InputError

CHANNELS = 10


def some_data(count: int = 60, seed: int = 0, channels: int = CHANNELS):
    """Hallucinated responses whose last state lies on a ring around that of the others: no plane tells them."""
    rng = np.random.default_rng(seed)
    items = []
    for number in range(count):
        states = rng.normal(size=(int(rng.integers(1, 9)), channels)) * 7 + 30
        angle = rng.uniform(0, 2 * np.pi)
        radius = 3.0 if number % 2 else 0.3
        states[-1, :2] = 5 + radius * np.cos(angle), 5 + radius * np.sin(angle)
        spans = [(0, 1)] if number % 2 else []
        items.append(traced({"hidden_state_4": states}, *spans, number=number + 1000 * seed))
    return items


def test_it_is_the_network_of_scikit_learn_on_the_last_state():
    items = some_data()
    detector = Saplma(layer=4, epochs=5, seed=3).fit(items)
    last = np.stack([item.trace["hidden_state_4"][-1] for item in items]).astype(np.float64)
    labels = [bool(item.example.labels) for item in items]
    scaler = StandardScaler().fit(last)
    network = MLPClassifier((256, 128, 64), batch_size=32, random_state=3, max_iter=5, n_iter_no_change=6)
    with pytest.warns(UserWarning, match="Maximum iterations"):
        network.fit(scaler.transform(last), labels)
    want = network.predict_proba(scaler.transform(last))[:, 1]
    got = [detector.response_score(detector.token_scores(item.trace)) for item in items]
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_it_finds_what_no_plane_tells_apart():
    detector = Saplma(layer=4, epochs=60).fit(some_data(200))
    assert detector.score(some_data(100, seed=1)) > 0.9


def test_the_score_is_that_of_the_last_token_that_has_one():
    detector = Saplma(layer=4).fit(some_data())
    assert detector.response_score(np.array([0.9, 0.2, np.nan])) == 0.2
    assert detector.aggregation == "last token" and "response" in detector.label_kinds


def test_a_fixed_number_of_epochs_is_no_warning(caplog):
    with caplog.at_level(logging.WARNING):
        Saplma(layer=4).fit(some_data())
    assert not caplog.records


def test_seeds_matter_and_are_kept():
    items = some_data()
    one, again, other = (Saplma(layer=4, seed=seed).fit(items).state()[0] for seed in (1, 1, 2))
    assert all((one[name] == again[name]).all() for name in one)
    assert any((one[name] != other[name]).any() for name in one)


def test_a_channel_that_does_not_vary_does_no_harm():
    items = some_data()
    for item in items:
        item.trace["hidden_state_4"][:, 7] = 0.1
    assert all(np.isfinite(Saplma(layer=4).fit(items).token_scores(item.trace)).all() for item in items)


def test_other_channels_are_refused():
    detector = Saplma(layer=4).fit(some_data())
    (other,) = some_data(1, channels=12)
    with pytest.raises(InputError, match="'saplma' learnt from 10 channels and this trace has 12"):
        detector.token_scores(other.trace)
    with pytest.raises(InputError, match=r"the same channels. Got \[10, 12\]"):
        Saplma(layer=4).fit([*some_data(4), *some_data(4, seed=1, channels=12)])


@pytest.mark.parametrize(
    "damage",
    [
        lambda arrays: {**arrays, "weights_1": arrays["weights_1"].T},
        lambda arrays: {**arrays, "biases_0": arrays["biases_0"][:-1]},
        lambda arrays: {**arrays, "weights_3": arrays["weights_2"]},
        lambda arrays: {**arrays, "weights_0": arrays["biases_0"]},
    ],
)
def test_layers_that_do_not_fit_are_refused(damage):
    arrays, facts = Saplma(layer=4).fit(some_data()).state()
    with pytest.raises(InputError, match="layers of a network must fit together"):
        Saplma(layer=4).restore(damage(arrays), facts)


@pytest.mark.parametrize("params", [{"layer": -1}, {"layer": "14"}, {"epochs": 0}, {"seed": -1}, {"seed": True}])
def test_parameters_out_of_range_are_refused(params):
    with pytest.raises(InputError, match=rf"The '{next(iter(params))}' parameter of Saplma must be .* Got"):
        Saplma(**params)
