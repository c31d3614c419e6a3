"""The towers, read by the tiny model."""

from __future__ import annotations

import pytest
from towers import make_examples, trace_all


@pytest.fixture(scope="session")
def examples():
    return make_examples()


@pytest.fixture(scope="session")
def traced(tiny, examples):
    return trace_all(tiny, examples)
