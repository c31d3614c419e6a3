"""The command line, run in this process."""

from typer.testing import CliRunner, Result

from groundscope.cli.main import app


def run(*arguments: object, code: int | None = None) -> Result:
    """Run a command and return what it printed; whatever it raises and does not tell is raised here.

    Args:
        arguments: As in a shell; taken as text.
        code: The exit code that is expected, if one is.
    """
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert code in (None, done.exit_code), done.output + done.stderr
    return done
