"""Trace: a mapping from signal names to arrays."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from tiny_layouts import assert_same, some_layouts

import groundscope as gs
from groundscope.errors import InputError, UnknownNameError
from groundscope.trace.signals import SIGNALS, check_signals, sources_of
from reference import families


@pytest.fixture(scope="module")
def trace():
    lm = gs.LanguageModel(families.build("llama"), name="tiny-llama")
    return lm.trace(some_layouts(1)[0], ["token_logprob", "lookback_ratio"])


def test_it_is_a_mapping_in_the_order_of_the_request(trace):
    assert list(trace) == ["token_logprob", "lookback_ratio"] and len(trace) == 2
    assert "token_logprob" in trace and "mmd" not in trace
    assert {name: values.shape for name, values in trace.items()} == {
        "token_logprob": (trace.tokens,),
        "lookback_ratio": (trace.tokens, 3, 4),
    }
    assert trace.model == "tiny-llama" and trace.attention_layers == (0, 1, 2)
    assert all(values.dtype == np.float32 for values in trace.values())


def test_a_signal_that_was_not_requested_is_not_an_unknown_one(trace):
    with pytest.raises(InputError, match=r"'mmd' was not requested.*token_logprob, lookback_ratio.*lm.trace") as error:
        trace["mmd"]
    assert not isinstance(error.value, UnknownNameError)
    with pytest.raises(UnknownNameError, match="Did you mean 'token_logprob'"):
        trace["token_logprobs"]


def test_copies_and_pickles_hold_the_same(trace):
    for other in (copy.deepcopy(trace), pickle.loads(pickle.dumps(trace))):
        assert_same(other, trace, rtol=0, atol=0)
        assert other.attention_layers == trace.attention_layers
        np.testing.assert_array_equal(other.layout.prompt_ids, trace.layout.prompt_ids)


def test_names_are_given_back_once_each_in_order():
    assert check_signals(["mmd", "token_logprob", "mmd"]) == ("mmd", "token_logprob")
    assert sources_of(["mmd", "token_logprob"]) == {"contrast", "output"}
    with pytest.raises(UnknownNameError, match="'nonsense'"):
        check_signals(["mmd", "nonsense"])


def test_every_signal_says_what_it_is():
    assert len(SIGNALS) == 20
    for name, spec in SIGNALS.items():
        assert spec.name == name and spec.summary and spec.reference
