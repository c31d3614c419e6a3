"""What is put to a test: names, roles, layers and heads."""

from __future__ import annotations

import numpy as np
import pytest

from groundscope import Example
from groundscope.errors import InputError, UnknownNameError
from groundscope.evaluate.hypotheses.quantity import Quantity

EXAMPLE = Example("When?", ("It was built in 1889 by the company.",), "It was built in 1889.")
HEADS, LAYERS = "external_context_score", "parametric_knowledge_score"


@pytest.fixture(scope="module")
def trace(tiny):
    return tiny.trace(tiny.renderer().layout(EXAMPLE), [HEADS, LAYERS, "token_entropy"])


def test_names_reduce_as_they_say(trace):
    array = trace[HEADS].astype(np.float64)
    for name, want in {
        HEADS: array.mean((1, 2)),
        f"{HEADS}@1": array[:, 1].mean(1),
        f"{HEADS}@2.3": array[:, 2, 3],
        LAYERS: trace[LAYERS].mean(1, dtype=np.float64),
        f"{LAYERS}@0": trace[LAYERS][:, 0],
    }.items():
        np.testing.assert_allclose(Quantity.parse(name).values(trace), want, err_msg=name)
    entropy = Quantity.parse("token_entropy", "external")
    np.testing.assert_array_equal(entropy.values(trace), trace["token_entropy"])


def test_detectors_are_quantities_too(trace, tiny):
    found = Quantity.parse("entropy", "internal")
    assert found.signals == ("token_entropy",) and found.role == "internal"
    np.testing.assert_array_equal(found.values(trace), found.detector.token_scores(trace))


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("mmd", "external"),
        ("mmd_top100", "external"),
        (HEADS, "external"),
        (f"{LAYERS}@1", "internal"),
        ("information_processing_rate_calibrated", "internal"),
    ],
)
def test_known_signals_have_a_role(name, role):
    assert Quantity.parse(name).role == role


def test_given_roles_win():
    assert Quantity.parse("mmd", "internal").role == "internal"


def test_what_cannot_be_tested_is_refused(trace):
    with pytest.raises(InputError, match="depends on what it stands for"):
        Quantity.parse("token_entropy")
    with pytest.raises(InputError, match="names more of them"):
        Quantity.parse("mmd@3")
    with pytest.raises(InputError, match="names more of them"):
        Quantity.parse(f"{LAYERS}@3.1")
    with pytest.raises(InputError, match="per token, layer or head"):
        Quantity.parse("passage_attention", "external")
    with pytest.raises(UnknownNameError, match="signal or detector"):
        Quantity.parse("nonsense")
    with pytest.raises(InputError, match="'role'"):
        Quantity.parse("mmd", "both")
    with pytest.raises(InputError, match="Got layer 9"):
        Quantity.parse(f"{HEADS}@9").values(trace)
    with pytest.raises(InputError, match="Got head 4"):
        Quantity.parse(f"{HEADS}@1.4").values(trace)


def test_a_place_that_the_model_lacks_is_refused_before_it_reads(tiny, trace):
    for name, message in (
        (f"{HEADS}@9", "Got layer 9"),
        (f"{HEADS}@1.4", "Got head 4"),
        (f"{LAYERS}@3", "Got layer 3"),
    ):
        with pytest.raises(InputError, match=message):
            Quantity.parse(name).check_model(tiny)
    for name in (f"{HEADS}@2.3", f"{LAYERS}@2", HEADS, "mmd", "perplexity"):
        Quantity.parse(name, "external").check_model(tiny)


def test_what_is_read_of_passages_is_known_to_need_them():
    assert Quantity.parse(HEADS).needs_passages and not Quantity.parse("mmd").needs_passages
