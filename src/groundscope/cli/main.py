"""The command line: subcommands, and how errors become one line and an exit code."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from groundscope._version import __version__
from groundscope.cli import detectors, doctor, models, score
from groundscope.cli.console import (
    EXIT_CLOSED_PIPE,
    EXIT_FAULT,
    EXIT_INTERRUPTED,
    EXIT_WRONG_USE,
    note,
    show_library_notes,
)
from groundscope.errors import GroundscopeError


class _Group(TyperGroup):
    """Turns what is refused on purpose into one line; anything else keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except GroundscopeError as exc:
            if ctx.params.get("debug"):
                raise
            note(str(exc))
            raise typer.Exit(EXIT_WRONG_USE) from exc
        except KeyboardInterrupt as exc:
            note(str(exc) or "interrupted")
            raise typer.Exit(EXIT_INTERRUPTED) from exc
        except BrokenPipeError as exc:
            # Whoever read us has enough (`| head`). Python's own flush at exit must not fail on it again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(EXIT_CLOSED_PIPE) from exc


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"groundscope {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of every error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Find the parts of a RAG answer that its context does not support."""


app.command("score", epilog=score.EPILOG)(score.score)
app.command("detectors")(detectors.detectors)
app.command("doctor")(doctor.doctor)
app.add_typer(models.app, name="models")


def main() -> None:
    """Run the command line (the ``groundscope`` script).

    Exits with 0 for success, 2 for wrong use, input that is refused or a missing prerequisite, 70 with a
    traceback for a fault of ours, 130 after Ctrl-C, 141 if the reader of its output went away. ``groundscope
    score --help`` lists the codes of ``score``.
    """
    # Results leave as UTF-8, whatever the locale; a terminal that lacks a character must not end the run.
    if isinstance(sys.stdout, io.TextIOWrapper):
        if sys.stdout.isatty():
            sys.stdout.reconfigure(errors="replace")
        else:
            sys.stdout.reconfigure(encoding="utf-8", errors="strict")
    show_library_notes()
    try:
        app(prog_name="groundscope")
    except Exception:
        sys.excepthook(*sys.exc_info())
        sys.exit(EXIT_FAULT)  # Python's own choice, 1, would read as a verdict
