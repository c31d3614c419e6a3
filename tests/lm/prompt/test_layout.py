import numpy as np
import pytest
import torch

from groundscope.errors import InputError, LayoutError
from groundscope.lm.prompt.layout import Layout


def test_from_ids_keeps_what_it_is_given():
    layout = Layout.from_ids([5, 6, 7, 8, 9], (1, 2), passages=[(1, 2), (2, 4)], header=(4, 5))
    assert layout.prompt_ids.dtype == layout.response_ids.dtype == np.int64
    assert layout.prompt_ids.tolist() == [5, 6, 7, 8, 9]
    assert layout.response_ids.tolist() == [1, 2]
    assert layout.passages == ((1, 2), (2, 4))
    assert layout.passage_numbers == (0, 1)
    assert layout.header == (4, 5)
    assert (layout.prompt_length, layout.response_length, layout.passage_tokens) == (5, 2, 3)
    assert layout.contrast_prompt_ids == ()
    assert layout.response is None
    assert layout.response_offsets is None


def test_the_header_is_empty_by_default():
    assert Layout.from_ids([1, 2, 3], [4]).header == (3, 3)


@pytest.mark.parametrize(
    "ids",
    [
        [1, 2, 3],
        (1, 2, 3),
        np.array([1, 2, 3], dtype=np.int32),
        np.array([1, 2, 3], dtype=np.uint8),
        torch.tensor([1, 2, 3]),
    ],
    ids=["list", "tuple", "int32", "uint8", "tensor"],
)
def test_any_sequence_of_integers_will_do(ids):
    layout = Layout.from_ids(ids, ids, contrast_prompt_ids=ids)
    assert layout.prompt_ids.tolist() == layout.response_ids.tolist() == [1, 2, 3]
    assert [row.tolist() for row in layout.contrast_prompt_ids] == [[1, 2, 3]]


def test_ids_are_copied():
    ids = np.array([1, 2, 3])
    layout = Layout.from_ids(ids, [4])
    ids[0] = 99
    assert layout.prompt_ids.tolist() == [1, 2, 3]


def test_ranges_may_be_numpy_integers():
    layout = Layout.from_ids([1] * 6, [2], passages=np.array([[0, 2], [3, 4]]), header=np.array([5, 6]))
    assert layout.passages == ((0, 2), (3, 4))
    assert layout.header == (5, 6)


@pytest.mark.parametrize("given", [None, [], ()])
def test_no_contrast_prompt(given):
    assert Layout.from_ids([1], [2], contrast_prompt_ids=given).contrast_prompt_ids == ()


@pytest.mark.parametrize(
    "given", [[1, 2], np.array([1, 2]), [[1, 2], [3]], (np.array([1, 2]), (3,)), np.array([[1, 2], [3, 4]])]
)
def test_one_contrast_prompt_or_several(given):
    rows = [row.tolist() for row in Layout.from_ids([1], [2], contrast_prompt_ids=given).contrast_prompt_ids]
    assert rows in ([[1, 2]], [[1, 2], [3]], [[1, 2], [3, 4]])
    assert len(rows) == (2 if np.ndim(given[0]) else 1)


def test_an_empty_response_is_a_layout():
    assert Layout.from_ids([1], []).response_length == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompt_ids": []}, "at least one token"),
        ({"prompt_ids": [1.0, 2.0]}, r"'prompt_ids'.*one-dimensional sequence of integers.*float64"),
        ({"prompt_ids": [[1, 2], [3, 4]]}, r"'prompt_ids'.*shape \(2, 2\)"),
        ({"prompt_ids": [[1, 2], [3]]}, r"'prompt_ids'.*one-dimensional"),
        ({"prompt_ids": 7}, r"'prompt_ids'.*shape \(\)"),
        ({"prompt_ids": "abc"}, r"'prompt_ids'"),
        ({"prompt_ids": [True, False]}, r"'prompt_ids'.*bool"),
        ({"prompt_ids": [1, None]}, r"'prompt_ids'.*object"),
        ({"prompt_ids": [1, -2]}, r"'prompt_ids'.*>= 0. Got -2"),
        ({"response_ids": [0.5]}, r"'response_ids'.*float64"),
        ({"response_ids": [[1]]}, r"'response_ids'.*shape \(1, 1\)"),
        ({"response_ids": [-1]}, r"'response_ids'.*Got -1"),
        ({"contrast_prompt_ids": [[]]}, "contrast prompt needs at least one token"),
        ({"contrast_prompt_ids": [1.5]}, r"'contrast_prompt_ids'.*float64"),
        ({"contrast_prompt_ids": [[1], [-1]]}, r"'contrast_prompt_ids'.*Got -1"),
        ({"contrast_prompt_ids": [[[1]]]}, r"'contrast_prompt_ids'.*shape \(1, 1\)"),
        ({"passages": [(0, 3), (2, 4)]}, r"disjoint.*length 6.*\(2, 4\)"),
        ({"passages": [(3, 4), (0, 1)]}, "ordered"),
        ({"passages": [(2, 1)]}, "ordered"),
        ({"passages": [(-1, 2)]}, "inside the prompt"),
        ({"passages": [(0, 7)]}, "inside the prompt"),
        ({"passages": [(0.5, 2)]}, r"'passages'.*integers.*\(0.5, 2\)"),
        ({"passages": [(0, 1, 2)]}, r"'passages'.*\(start, end\)"),
        ({"passages": [3, 4]}, r"'passages'.*Got 3"),
        ({"header": (3, 5)}, r"ends with the prompt \(at 6\).*\(3, 5\)"),
        ({"header": (4, 7)}, "ends with the prompt"),
        ({"header": (6, 5)}, "ends with the prompt"),
        ({"header": (3, 6), "passages": [(0, 4)]}, "after the passages"),
        ({"header": (4.0, 6)}, r"'header'.*integers"),
        ({"header": 5}, r"'header'.*Got 5"),
        ({"response_offsets": [[0, 1]]}, "need the response's text"),
        ({"response": "ab", "response_offsets": [[0, 1], [1, 2]]}, r"\(1, 2\) integers.*Got shape \(2, 2\)"),
        ({"response": "ab", "response_offsets": [[0, 3]]}, r"end <= 2.*Got \[0, 3\]"),
        ({"response": "ab", "response_offsets": [[2, 1]]}, r"Got \[2, 1\]"),
        ({"response": "ab", "response_offsets": [[-1, 1]]}, r"Got \[-1, 1\]"),
        ({"response": "ab", "response_offsets": [[0.0, 1.0]]}, "float64"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    values = {"prompt_ids": [1, 2, 3, 4, 5, 6], "response_ids": [7], **arguments}
    with pytest.raises(LayoutError, match=message) as caught:
        Layout.from_ids(**values)
    assert isinstance(caught.value, InputError)


def test_offsets_of_a_response():
    layout = Layout.from_ids([1], [7, 8], response="a🎉", response_offsets=[[0, 1], [1, 2]])
    assert layout.response == "a🎉"
    assert layout.response_offsets.tolist() == [[0, 1], [1, 2]]


@pytest.mark.parametrize(
    ("other", "shared"),
    [([1, 2, 3, 4], 4), ([1, 2, 9, 4], 2), ([9], 0), ([1, 2], 2), ([1, 2, 3, 4, 5], 4), ([], 0)],
)
def test_common_prefix(other, shared):
    assert Layout.from_ids([1, 2, 3, 4], [5]).common_prefix(other) == shared
