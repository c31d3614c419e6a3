"""``groundscope generate``: the model writes an answer, which is checked."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from groundscope.cli.answers.reading import Reading
from groundscope.cli.console import EXIT_FLAGGED, EXIT_INCOMPLETE, read_argument
from groundscope.cli.options import DeviceOption, DtypeOption, ProfileOption, TemplateOption
from groundscope.errors import InputError
from groundscope.lm.loading.catalog import DEFAULT_MODEL

if TYPE_CHECKING:
    from groundscope.mitigate.answering.answer import Generation


def generate(
    question: Annotated[str, typer.Option(help="The question; may be left out.", metavar="TEXT")] = "",
    passage: Annotated[
        list[str] | None, typer.Option(help="A passage; repeat for more than one.", metavar="FILE_OR_TEXT")
    ] = None,
    strategy: Annotated[
        Literal["greedy", "sample", "guided", "aarf", "best-of-n"], typer.Option(help="How the answer is written.")
    ] = "greedy",
    detector: Annotated[
        str, typer.Option(help="Guides, chooses and judges; see 'groundscope detectors'.")
    ] = "contrast",
    model: Annotated[
        str, typer.Option(help="The model that writes: embedded name, hub id, folder or .gguf.")
    ] = DEFAULT_MODEL,
    stream: Annotated[
        bool | None,
        typer.Option("--stream/--no-stream", help="Print the answer as it is written; default: on a terminal."),
    ] = None,
    format: Annotated[Literal["text", "json"], typer.Option(help="What to print.")] = "text",  # noqa: A002
    max_new_tokens: Annotated[int, typer.Option(min=1, help="At most so many tokens.")] = 256,
    temperature: Annotated[float | None, typer.Option(help="Of the draws. [default: 0.9]")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from this share of the likeliest. [default: 0.95]")] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw from so many of the likeliest. [default: all]")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="A string that ends the answer; repeatable.")] = None,
    seed: Annotated[int, typer.Option(help="Decides the draws, and which random document is drawn.")] = 0,
    candidates: Annotated[int | None, typer.Option(help="guided: continuations per chunk. [default: 8]")] = None,
    chunk: Annotated[int | None, typer.Option(help="guided: tokens in a chunk. [default: 8]")] = None,
    variant: Annotated[
        Literal["paper", "official"] | None, typer.Option(help="guided: the paper's way or the released code's.")
    ] = None,
    preset: Annotated[
        Literal["paper", "paper-llama3", "paper-dolly", "code"] | None,
        typer.Option(help="aarf: constants of the paper or of the released code. [default: paper]"),
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="aarf: factor on the heads, in place of the preset's.")] = None,
    beta: Annotated[float | None, typer.Option(help="aarf: factor on the feed-forward blocks.")] = None,
    tau: Annotated[float | None, typer.Option(help="aarf: steps that score above this are changed.")] = None,
    passes: Annotated[
        int | None, typer.Option(min=1, max=2, help="aarf: 1 uses the last step's score. [default: 2]")
    ] = None,
    cache: Annotated[
        Literal["plain", "changed"] | None, typer.Option(help="aarf: which keys and values later tokens read.")
    ] = None,
    n: Annotated[int | None, typer.Option("--n", help="best-of-n: how many answers. [default: 8]")] = None,
    abstain: Annotated[
        Literal["refuse", "remove"] | None,
        typer.Option(help="Above the threshold: refuse, or remove unsupported sentences."),
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="Flag answers that score at least this.")] = None,
    profile: ProfileOption = None,
    device: DeviceOption = None,
    dtype: DtypeOption = "auto",
    template: TemplateOption = None,
    include_context: Annotated[
        bool,
        typer.Option("--include-context/--no-include-context", help="Repeat question and passages in JSON."),
    ] = False,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="Exit with 0 also if the answer is flagged.")] = False,
) -> None:
    """Let the model write an answer from passages, and say how well it is supported.

    FILE_OR_TEXT is read as a file if one of that name exists; '@FILE' insists on a file, '-' reads stdin, anything
    else is the text itself. On a terminal, unsupported spans take colour while the answer is written; its verdict
    follows.
    """
    if not passage:
        raise InputError("Give at least one --passage. See 'groundscope generate --help'.")
    if passage.count("-") > 1:
        raise InputError("Standard input ('-') can be read for one option only. Got it for several.")
    if stream and (format == "json" or abstain is not None):
        other = "--format json" if format == "json" else f"--abstain {abstain}"
        raise InputError(f"--stream shows the answer as it is written, and {other} needs it whole. Leave one out.")
    shown_live = sys.stdout.isatty() and format == "text" and abstain is None if stream is None else stream
    texts = [read_argument("--passage", item) for item in passage]
    options: dict[str, Any] = {
        "max_new_tokens": max_new_tokens, "seed": seed, "stop": stop or (), "temperature": temperature, "top_p": top_p,
        "top_k": top_k, "candidates": candidates, "chunk": chunk, "variant": variant, "n": n, "abstain": abstain,
        "preset": preset, "alpha": alpha, "beta": beta, "tau": tau, "passes": passes, "cache": cache,
    }  # fmt: skip
    _check(strategy, options)
    reading = Reading(model, detector, threshold, device, dtype, template, "refuse", 8, seed, profile=profile)
    scope = reading.load()
    if shown_live:
        from groundscope.cli.answers.live import stream_to_terminal

        with stream_to_terminal() as shown:
            generation = scope.generate(question, texts, strategy, on_text=shown.add, on_draft=shown.draft, **options)
    else:
        generation = scope.generate(question, texts, strategy, **options)
    if format == "json":
        print(json.dumps(generation.to_dict(include_context), ensure_ascii=False, allow_nan=False))
    else:
        _show(generation)
    raise typer.Exit(_exit_code(generation, exit_zero))


def _check(strategy: str, options: dict[str, Any]) -> None:
    """Refuse options before a model is loaded."""
    from groundscope.mitigate.answering.options import Writing

    Writing.of(strategy, options)


def _show(generation: Generation) -> None:
    from groundscope.report.safe_text import visible
    from groundscope.report.verdict.terminal import format_verdict

    abstention = generation.abstention
    if abstention is None or abstention.action == "kept":
        print(format_verdict(generation.verdict))
        if generation.ended == "length":
            print(f"\nThe answer was cut at {len(generation.log.ids)} tokens; --max-new-tokens allows for more.")
        return
    print(visible(generation.text))
    print(f"\n{visible(abstention.reason)}")
    if abstention.action == "removed":
        print("Removed from the answer:")
        for item in abstention.removed:
            print(f'  - "{visible(item.text)}" at {item.start}-{item.end}')


def _exit_code(generation: Generation, exit_zero: bool) -> int:
    if generation.verdict.score is None:
        return EXIT_INCOMPLETE
    return EXIT_FLAGGED if generation.verdict.flagged and not exit_zero else 0
