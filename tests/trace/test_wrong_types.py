"""Arguments of the wrong type are refused in words, before a pass is made."""

from __future__ import annotations

import re

import pytest

import groundscope as gs
from groundscope.errors import InputError, LayoutError, UnknownNameError

LAYOUT = gs.Layout.from_ids([1, 2, 3], [4, 5])


@pytest.mark.parametrize("layouts", [None, 5, "abc", [None], [LAYOUT, 5], {"a": LAYOUT}, gs.Example("q", ("p",), "r")])
def test_what_is_no_layout_is_refused(tiny, layouts):
    with pytest.raises(InputError, match=r"'layouts' parameter of trace must be a Layout or several\. Got \w+"):
        tiny.trace(layouts, ["token_logprob"])


@pytest.mark.parametrize("signals", [None, 5])
def test_what_is_no_list_of_signals_is_refused(tiny, signals):
    with pytest.raises(InputError, match=r"must be a list of names\. Got"):
        tiny.trace(LAYOUT, signals)


@pytest.mark.parametrize("signals", [[None], [5], [["mmd"]]])
def test_what_is_no_name_of_a_signal_is_refused(tiny, signals):
    with pytest.raises(UnknownNameError, match="Unknown signal"):
        tiny.trace(LAYOUT, signals)


@pytest.mark.parametrize("batch_size", ["2", None, 1.5, True])
def test_a_batch_size_is_a_whole_number(tiny, batch_size):
    with pytest.raises(InputError, match="'batch_size' parameter of trace must be an integer"):
        tiny.trace(LAYOUT, ["token_logprob"], batch_size=batch_size)


@pytest.mark.parametrize(
    "options",
    [
        {"passages": 5},
        {"passages": None},
        {"passages": "ab"},
        {"passages": {1}},
        {"passages": [5]},
        {"contrast_prompt_ids": 5},
        {"contrast_prompt_ids": {1}},
        {"contrast_prompt_ids": iter([1])},
        {"contrast_prompt_ids": {0: [1]}},
        {"contrast_prompt_ids": "ab"},
        {"contrast_prompt_ids": [[1], 2]},
        {"contrast_prompt_ids": [1, [2]]},
        {"contrast_prompt_ids": [[[1], [2, 3]]]},
        {"contrast_prompt_ids": [None]},
        {"response": 5},
        {"response": "ab", "response_offsets": [[0, 1], [1]]},
        {"header": 5},
    ],
    ids=lambda changes: re.sub(r" at 0x[0-9a-f]+", "", repr(changes)),
)
def test_what_is_no_part_of_a_layout_is_refused(options):
    with pytest.raises(LayoutError, match="must"):
        gs.Layout.from_ids([1, 2, 3], [4, 5], **options)


@pytest.mark.parametrize("name", [None, 5, ["smollm2-135m"]])
def test_what_cannot_name_a_model_is_refused_before_anything_is_loaded(name):
    with pytest.raises(InputError, match="named by a string or a path"):
        gs.LanguageModel.from_pretrained(name)
