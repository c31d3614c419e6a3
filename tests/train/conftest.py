"""A small labelled set read by two real tiny models of unlike shape."""

from __future__ import annotations

import pytest
from labelled import make_examples, read


@pytest.fixture(scope="session")
def labelled_examples():
    return make_examples()


@pytest.fixture(scope="session")
def traced(tiny, labelled_examples):
    return read(tiny, labelled_examples)


@pytest.fixture(scope="session")
def other_traced(make_tiny, labelled_examples):
    return read(make_tiny(name="other", layers=2, heads=8), labelled_examples)
