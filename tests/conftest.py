"""Real models for every test: a tiny random llama that reads text, and the embedded model if it is cached."""

from __future__ import annotations

import gc
import os

import hypothesis
import pytest
from memory import over_limit, peak_bytes
from tiny_model import TINY_CONTEXT, build_tiny_llama, build_tiny_tokenizer


@pytest.fixture(autouse=True)
def thawed():
    """Give back to the collector what a command run in this process kept from it."""
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def within_memory(request):
    """Name the test in which the worker's resident memory first went above the limit."""
    before = peak_bytes()
    yield
    message = over_limit(before, peak_bytes())
    if message and request.node.get_closest_marker("slow") is None:
        pytest.fail(message, pytrace=False)


@pytest.fixture(scope="session")
def tiny_tokenizer():
    """A byte-level BPE tokenizer with a chat template, trained on four lines."""
    return build_tiny_tokenizer()


@pytest.fixture(scope="session")
def make_tiny(tiny_tokenizer):
    """Make a fresh tiny language model that a test may damage; ``context`` limits what it can read."""
    import groundscope as gs

    def make(context: int = TINY_CONTEXT, name: str = "tiny", layers: int = 3, heads: int = 4):
        model = build_tiny_llama(len(tiny_tokenizer), context, layers, heads)
        return gs.LanguageModel(model, tiny_tokenizer, name=name)

    return make


@pytest.fixture(scope="session")
def tiny(make_tiny):
    """The tiny language model, shared: tests leave it as it is."""
    return make_tiny()


@pytest.fixture(scope="session")
def embedded():
    """The embedded language model, loaded once."""
    from groundscope.lm.loading.catalog import DEFAULT_MODEL
    from groundscope.lm.loading.embedded import embedded_status

    if not embedded_status(DEFAULT_MODEL).cached:
        pytest.skip(f"the embedded model is not in the cache: groundscope models fetch {DEFAULT_MODEL}")
    import groundscope as gs

    return gs.LanguageModel.from_pretrained(DEFAULT_MODEL, dtype="float32", device="cpu")


# The same examples in every run of continuous integration; new ones at every run by hand.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")
