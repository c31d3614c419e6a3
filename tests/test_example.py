"""What an example refuses to hold."""

from __future__ import annotations

import numpy as np
import pytest

from groundscope.errors import InputError
from groundscope.example import Example, Label


@pytest.mark.parametrize("labels", [[{"start": 0, "end": 1}], 5, "ab", [None], {"start": 0}])
def test_labels_that_are_no_list_of_labels_are_refused(labels):
    with pytest.raises(InputError, match=r"must be a (list of )?Label"):
        Example("q", ("p",), "response", labels=labels)


def test_labels_are_kept_as_a_tuple():
    assert Example("q", ("p",), "response", labels=[Label(0, 1)]).labels == (Label(0, 1),)


@pytest.mark.parametrize("identifier", [5, ["a"], True, b"a"])
def test_an_identifier_is_a_string_or_none(identifier):
    with pytest.raises(InputError, match="'id' must be a string"):
        Example("q", ("p",), "r", id=identifier)


def test_an_identifier_is_valid_unicode():
    with pytest.raises(InputError, match="'id' is not valid Unicode"):
        Example("q", ("p",), "r", id="\ud800")
    with pytest.raises(InputError, match="'id' is not valid Unicode"):
        Example.from_dict({"response": "r", "id": "\ud800"})


@pytest.mark.parametrize("field", ["id", "source_id"])
@pytest.mark.parametrize(
    ("value", "text"), [(5, "5"), (-3, "-3"), (10**20, "1" + "0" * 20), (np.int64(7), "7"), ("3.0", "3.0"), ("", "")]
)
def test_an_identifier_in_a_record_is_a_string_or_a_whole_number(field, value, text):
    found = getattr(Example.from_dict({"response": "r", field: value}), field)
    assert found == text and type(found) is str


@pytest.mark.parametrize("field", ["id", "source_id"])
@pytest.mark.parametrize(
    "value", [["a"], {"a": 1}, True, False, 3.5, float("nan"), float("inf"), np.float64(3), np.bool_(1), b"a", ()]
)
def test_whatever_else_is_no_identifier(field, value):
    with pytest.raises(InputError, match=f"'{field}' must be a string or a whole number. Got ") as refused:
        Example.from_dict({"response": "r", field: value})
    assert type(value).__name__ in str(refused.value) and len(str(refused.value)) < 200


def test_a_float_that_is_whole_is_told_how_to_be_written():
    with pytest.raises(InputError, match=r"Got 3\.0 \(float\) instead\. Write 3 or '3\.0'\."):
        Example.from_dict({"response": "r", "id": 3.0})
    with pytest.raises(InputError, match=r"\(list\) instead\.$"):
        Example.from_dict({"response": "r", "id": ["x" * 1000]})
