"""What each untrained detector computes from its signals, and which way it points."""

from __future__ import annotations

import numpy as np
import pytest

import groundscope as gs
from groundscope.detectors.untrained.contrast import Contrast
from groundscope.detectors.untrained.lumina import Lumina
from groundscope.detectors.untrained.uncertainty import Entropy, Perplexity
from groundscope.errors import InputError


def trace_of(**signals) -> gs.Trace:
    arrays = {name: np.asarray(values, dtype=np.float32) for name, values in signals.items()}
    length = len(next(iter(arrays.values())))
    return gs.Trace(gs.Layout.from_ids([1, 2], range(3, 3 + length)), arrays)


def test_contrast_is_the_log_ratio_of_the_two_readings():
    trace = trace_of(token_logprob=[-1.0, -4.0, -2.0], token_logprob_contrast=[-3.0, -1.0, -2.0])
    # Likelier with the passages; likelier under a random document; no difference.
    np.testing.assert_allclose(Contrast().token_scores(trace), [-2.0, 3.0, 0.0])
    assert Contrast().response_score(Contrast().token_scores(trace)) == pytest.approx(1 / 3)
    assert Contrast().uses_contrast and Contrast().signals == ("token_logprob", "token_logprob_contrast")


def test_lumina_rises_with_internal_knowledge_and_falls_with_what_the_passages_move():
    trace = trace_of(information_processing_rate_calibrated=[0.2, 1.0], mmd=[0.6, 0.1])
    np.testing.assert_allclose(Lumina().token_scores(trace), [-0.2, 0.45], atol=1e-7)
    np.testing.assert_allclose(Lumina(weight=1).token_scores(trace), [0.2, 1.0], atol=1e-7)
    np.testing.assert_allclose(Lumina(weight=0.0).token_scores(trace), [-0.6, -0.1], atol=1e-7)


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan"), "0.5", None, True])
def test_lumina_refuses_a_weight_that_is_no_share(weight):
    with pytest.raises(InputError, match=r"'weight' parameter of Lumina must be a float in the range \[0, 1\]. Got"):
        Lumina(weight=weight)


def test_perplexity_and_entropy_are_surprise_and_doubt():
    trace = trace_of(token_logprob=[-0.5, -3.0], token_entropy=[0.1, 2.0])
    np.testing.assert_allclose(Perplexity().token_scores(trace), [0.5, 3.0])
    np.testing.assert_allclose(Entropy().token_scores(trace), [0.1, 2.0])
    assert np.exp(Perplexity().response_score(np.array([0.5, 3.0]))) == pytest.approx(np.exp(1.75))
    assert not Perplexity().uses_contrast and not Entropy().uses_contrast


def test_contrast_tells_a_supported_number_from_an_invented_one(embedded):
    scope = gs.Scope(embedded, threshold=0.0, evidence=False)
    passage = "The Eiffel Tower was completed in 1889 and stands in Paris."
    question = "When was the tower completed?"
    right, wrong = (scope.score(question, [passage], f"It was completed in {year}.") for year in (1889, 1923))
    assert right.score < wrong.score
