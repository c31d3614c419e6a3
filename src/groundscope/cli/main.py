"""The command line: subcommands, and how errors become one line and an exit code."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from groundscope._version import __version__
from groundscope.cli.answers import generate, score
from groundscope.cli.console import (
    EXIT_CLOSED_PIPE,
    EXIT_FAULT,
    EXIT_INTERRUPTED,
    EXIT_WRONG_USE,
    note,
    show_library_notes,
)
from groundscope.cli.machine import doctor, models
from groundscope.cli.probes import calibrate, detectors, import_probe, train, transfer
from groundscope.cli.records import audit, convert, label
from groundscope.cli.research import analyse, evaluate, extract, validate
from groundscope.errors import GroundscopeError


class _Group(TyperGroup):
    """Turns what is refused on purpose into one line; anything else keeps its traceback."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)  # prints --version and --help
        except OSError as exc:
            if exc.errno is None:
                raise
            raise typer.Exit(_refused(exc)) from exc

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
        except OSError as exc:
            # Without a number it is not the system's answer but a library's, or a fault of ours.
            if exc.errno is None or (ctx.params.get("debug") and not isinstance(exc, BrokenPipeError)):
                raise
            raise typer.Exit(_refused(exc)) from exc


def _refused(error: OSError) -> int:
    """Say in one line what the system refused and return the exit code."""
    stuck = _stdout_is_stuck()
    if isinstance(error, BrokenPipeError):
        return EXIT_CLOSED_PIPE  # whoever read us has enough (`| head`)
    subject = repr(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
    if subject is None and stuck:
        subject = "standard output"
    note(f"{subject or 'standard output or another open file'}: {error.strerror}.")
    return EXIT_WRONG_USE


def _stdout_is_stuck() -> bool:
    """Tell whether standard output takes nothing; if so, drop what waits, or the flush at exit fails on it."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


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
app.command("generate", epilog=score.EPILOG)(generate.generate)
app.command("extract")(extract.extract)
app.command("train")(train.train)
app.command("calibrate")(calibrate.calibrate)
app.command("import-probe")(import_probe.import_probe)
app.command("evaluate", epilog=evaluate.EPILOG)(evaluate.evaluate)
app.command("transfer")(transfer.transfer)
app.command("validate")(validate.validate)
app.command("analyse")(analyse.analyse)
app.command("convert", epilog=convert.EPILOG)(convert.convert)
app.command("audit", epilog=audit.EPILOG)(audit.audit)
app.command("label", epilog=label.EPILOG)(label.label)
app.command("detectors")(detectors.detectors)
app.command("doctor")(doctor.doctor)
app.add_typer(models.app, name="models")


def main() -> None:
    """Run the command line (the ``groundscope`` script).

    Exits with 0 for success, 2 for wrong use, refused input, a missing prerequisite or what the system refuses,
    70 with a traceback for a fault of ours, 130 after Ctrl-C, 141 if the reader of its output went away.
    ``groundscope score --help`` lists the codes of ``score``.
    """
    if sys.stdout is None:  # started with it closed
        note("Standard output is closed, so nothing can be shown. Send it somewhere, /dev/null for instance.")
        sys.exit(EXIT_WRONG_USE)
    # Results leave as UTF-8, whatever the locale; a terminal that lacks a character must not end the run.
    if isinstance(sys.stdout, io.TextIOWrapper):
        if sys.stdout.isatty():
            sys.stdout.reconfigure(errors="replace")
        else:
            sys.stdout.reconfigure(encoding="utf-8", errors="strict")
    show_library_notes()
    try:
        app(prog_name="groundscope")
    except SystemExit as left:
        try:
            sys.stdout.flush()  # here and not by Python at exit, which could only complain
        except OSError as exc:
            sys.exit(_refused(exc))
        raise left
    except Exception:
        sys.excepthook(*sys.exc_info())
        sys.exit(EXIT_FAULT)  # Python's own choice, 1, would read as a verdict
