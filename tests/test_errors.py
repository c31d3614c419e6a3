from __future__ import annotations

import pytest

from groundscope.errors import InputError, UnknownNameError, check_count, is_finite


@pytest.mark.parametrize("given", [None, 5, ["mmd"], b"mmd"])
def test_an_unknown_name_that_is_no_string_is_shown_as_it_is(given):
    with pytest.raises(UnknownNameError) as caught:
        raise UnknownNameError("signal", given, ["mmd"])
    assert f"Unknown signal {given!r}." in str(caught.value)


@pytest.mark.parametrize("given", ["8", None, 1.5, True, 0, -1])
def test_a_count_is_a_whole_number_of_at_least_one(given):
    with pytest.raises(InputError, match=r"'batch_size' parameter of Scope must be .*at least 1. Got"):
        check_count("Scope", "batch_size", given)


def test_finite_numbers_are_neither_flags_nor_texts():
    assert is_finite(0) and is_finite(-1.5)
    assert not any(map(is_finite, (True, "1", None, float("nan"), float("inf"), 1j)))
