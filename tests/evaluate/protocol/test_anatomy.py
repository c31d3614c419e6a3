"""Where in the model a method's weight sits, and what the report draws of it."""

from __future__ import annotations

import numpy as np
import pytest
from planted import HEAD, HEADS, LAYER, LAYERS, planted

from groundscope.detectors.learned.redeep import ReDeEPToken
from groundscope.detectors.learned.redeep_chunk import ReDeEPChunk
from groundscope.evaluate.protocol.protocol import evaluate
from groundscope.report.evaluation.plots import draw


@pytest.fixture(scope="module")
def found(tiny):
    data = planted(tiny, 48, seed=4, chunks=3, strength=5.0)
    detectors = [ReDeEPToken(heads=1, layers=1, beta=0.5), ReDeEPChunk(heads=1, layers=1, beta=0.5)]
    return evaluate(data, detectors, count=2, resamples=20, cross=False, levels=["response"])


def test_redeep_shows_its_heads_and_layers(found):
    assert [item.row for item in found.anatomies] == ["redeep-token", "redeep-chunk"]
    for item in found.anatomies:
        heads, layers = np.array(item.head_weights), np.array(item.layer_weights)
        assert heads.shape == (LAYERS, HEADS) and layers.shape == (LAYERS,)
        assert heads[HEAD] == heads.sum() == -0.5 and layers[LAYER] == layers.sum() == 1.0  # the same in every fold


def test_the_report_draws_the_map_of_heads_and_the_profile_of_layers(found):
    pytest.importorskip("matplotlib")
    plots = {plot.name: plot.svg for plot in draw(found)}
    for name in ("head-weights", "layer-profile"):
        assert "redeep-token" in plots[name] and "redeep-chunk" in plots[name]
    assert "of heads" not in plots["layer-profile"]  # these are weights of layers
