"""The command line around one real model, loaded once."""

import signal

import pytest
from command_line import run

from groundscope.lm.loading.catalog import DEFAULT_MODEL


@pytest.fixture(scope="session")
def embedded_scope(embedded):
    from groundscope.scope import Scope

    return Scope(embedded)


@pytest.fixture(scope="session")
def scopes(embedded_scope):
    """What has been loaded, by settings."""
    from groundscope.cli.answers.reading import Reading

    return {Reading(DEFAULT_MODEL, "contrast", None, None, "auto", None, "refuse", 8, 0): embedded_scope}


@pytest.fixture
def groundscope(scopes, embedded_scope, monkeypatch):
    """Run the command line in this process; whatever the settings, they share one model."""
    from groundscope.cli.answers.reading import Reading
    from groundscope.lm.language_model import LanguageModel

    load, from_pretrained = Reading.load, LanguageModel.from_pretrained

    def shared(name, **options):
        if name == DEFAULT_MODEL and options == {"dtype": None, "device": None}:
            return embedded_scope.lm
        return from_pretrained(name, **options)

    monkeypatch.setattr(LanguageModel, "from_pretrained", shared)

    def load_once(self):
        if self not in scopes:
            scopes[self] = load(self)
        return scopes[self]

    monkeypatch.setattr(Reading, "load", load_once)

    return run


@pytest.fixture
def interruptible():
    """Let processes that a test starts hear Ctrl-C: what runs in the background of a shell has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
