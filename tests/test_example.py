"""What an example refuses to hold."""

from __future__ import annotations

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
    assert Example.from_dict({"response": "r", "id": 5}).id == "5"
