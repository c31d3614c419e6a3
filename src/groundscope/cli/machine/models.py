"""``groundscope models``: list, fetch and remove the embedded models."""

from __future__ import annotations

import json
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from groundscope.lm.loading.embedded import EmbeddedStatus

app = typer.Typer(help="List the embedded models, fetch them ahead of time, remove them.")


class OutputFormat(str, Enum):
    """How a command prints its result."""

    text = "text"
    json = "json"


Format = Annotated[OutputFormat, typer.Option("--format", help="How to print the result.")]
Name = Annotated[str, typer.Argument(help="Name of an embedded model.")]


@app.callback(invoke_without_command=True)
def models(context: typer.Context, output: Format = OutputFormat.text) -> None:
    """List the embedded models, fetch them ahead of time, remove them."""
    if context.invoked_subcommand is None:
        list_models(output)


@app.command("list")
def list_models(output: Format = OutputFormat.text) -> None:
    """List the embedded models and whether the cache holds them."""
    from groundscope.lm.loading.catalog import EMBEDDED
    from groundscope.lm.loading.embedded import embedded_status

    states = [embedded_status(name) for name in EMBEDDED]
    if output is OutputFormat.json:
        typer.echo(json.dumps([_record(state) for state in states], indent=2))
        return
    for state in states:
        typer.echo(_text(state))
    typer.echo("\nAny causal model on the Hugging Face hub, a local folder or a .gguf file works as well.")


@app.command("fetch")
def fetch(name: Name, output: Format = OutputFormat.text) -> None:
    """Fetch and convert an embedded model now, so that later runs need no network."""
    from groundscope.lm.loading.embedded import embedded_status, ensure_embedded

    ensure_embedded(name, notify=lambda line: typer.echo(line, err=True))
    _show(embedded_status(name), output)


@app.command("remove")
def remove(name: Name, output: Format = OutputFormat.text) -> None:
    """Remove an embedded model from the cache."""
    from groundscope.lm.loading.embedded import embedded_status, remove_embedded

    remove_embedded(name)
    _show(embedded_status(name), output)


def _show(state: EmbeddedStatus, output: OutputFormat) -> None:
    typer.echo(json.dumps(_record(state), indent=2) if output is OutputFormat.json else _text(state))


def _record(state: EmbeddedStatus) -> dict[str, Any]:
    model = state.model
    return {
        "name": model.name,
        "aliases": list(model.aliases),
        "title": model.title,
        "licence": model.licence,
        "layers": model.layers,
        "heads": model.heads,
        "context": model.context,
        "requirement": model.requirement,
        "cached": state.cached,
        "path": str(state.path),
        "bytes": state.size,
        "problem": state.problem,
    }


def _text(state: EmbeddedStatus) -> str:
    from groundscope.lm.loading.cache import format_bytes
    from groundscope.lm.loading.catalog import DEFAULT_MODEL

    model = state.model
    default = " (default)" if model.name == DEFAULT_MODEL else ""
    shape = f"{model.layers} layers x {model.heads} heads, {model.context} tokens"
    if state.cached:
        where = f"cached in {state.path}, {format_bytes(state.size)}"
    elif state.path.exists():
        where = f"damaged in {state.path}: {state.problem}; the next use builds it again"
    else:
        size = format_bytes(model.download_bytes)
        where = f"not cached; fetched at first use ({size}) or by `groundscope models fetch {model.name}`"
    return f"{model.name}{default}\n  {model.title}, {model.licence}, {shape}\n  {where}"
