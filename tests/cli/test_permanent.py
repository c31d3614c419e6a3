"""What commands load is kept out of the search for cyclic garbage, and the search goes on afterwards."""

from __future__ import annotations

import gc
import weakref

import pytest

from groundscope.cli.permanent import permanent


class Node:
    """A thing that holds itself."""

    def __init__(self) -> None:
        self.itself = self


def test_no_search_while_it_loads() -> None:
    with permanent():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_what_was_loaded_is_not_looked_at_again() -> None:
    with permanent():
        loaded = Node()
    assert all(found is not loaded for found in gc.get_objects())


def test_garbage_made_later_is_still_found() -> None:
    with permanent():
        pass
    seen = weakref.ref(Node())
    gc.collect()
    assert seen() is None


def test_the_search_goes_on_after_a_failure() -> None:
    with pytest.raises(ValueError, match="no such model"), permanent():
        raise ValueError("no such model")
    assert gc.isenabled()


def test_who_turned_the_search_off_finds_it_off() -> None:
    gc.disable()
    try:
        with permanent():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
