"""The command line around one real model, loaded once."""

import pytest
from typer.testing import CliRunner

from groundscope.lm.catalog import DEFAULT_MODEL
from groundscope.lm.embedded import embedded_status


@pytest.fixture(scope="session")
def embedded_scope():
    if not embedded_status(DEFAULT_MODEL).cached:
        pytest.skip(f"the embedded model is not in the cache: groundscope models fetch {DEFAULT_MODEL}")
    from groundscope.scope import Scope

    return Scope.from_pretrained(DEFAULT_MODEL)


@pytest.fixture
def groundscope(embedded_scope, monkeypatch):
    """Run the command line in this process; with default settings, on the model that is loaded already."""
    from groundscope.cli.main import app
    from groundscope.cli.score import Reading

    default = Reading(DEFAULT_MODEL, "contrast", None, None, "auto", None, "refuse", 8, 0)
    load = Reading.load
    monkeypatch.setattr(Reading, "load", lambda self: embedded_scope if self == default else load(self))

    def run(*arguments):
        done = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done

    return run
