"""The command line around one real model, loaded once."""

import signal

import pytest
from typer.testing import CliRunner

from groundscope.lm.loading.catalog import DEFAULT_MODEL
from groundscope.lm.loading.embedded import embedded_status


@pytest.fixture(scope="session")
def embedded_scope():
    if not embedded_status(DEFAULT_MODEL).cached:
        pytest.skip(f"the embedded model is not in the cache: groundscope models fetch {DEFAULT_MODEL}")
    from groundscope.scope import Scope

    return Scope.from_pretrained(DEFAULT_MODEL)


@pytest.fixture(scope="session")
def scopes(embedded_scope):
    """What has been loaded, by settings."""
    from groundscope.cli.answers.reading import Reading

    return {Reading(DEFAULT_MODEL, "contrast", None, None, "auto", None, "refuse", 8, 0): embedded_scope}


@pytest.fixture
def groundscope(scopes, monkeypatch):
    """Run the command line in this process; no model is loaded twice with the same settings."""
    from groundscope.cli.answers.reading import Reading
    from groundscope.cli.main import app

    load = Reading.load

    def load_once(self):
        if self not in scopes:
            scopes[self] = load(self)
        return scopes[self]

    monkeypatch.setattr(Reading, "load", load_once)

    def run(*arguments):
        done = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done

    return run


@pytest.fixture
def interruptible():
    """Let processes that a test starts hear Ctrl-C: what runs in the background of a shell has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
