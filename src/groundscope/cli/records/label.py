"""``groundscope label``: labels from a judge, or from known answers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from groundscope.cli.options import output_file
from groundscope.errors import InputError, is_finite

EPILOG = (
    "Exit codes. 0: every record is labelled. 2: wrong use, refused input, or the judge cannot be reached; what was "
    "done is kept. 3: a record could not be read or labelled, or a limit was reached. 130: interrupted. After 2, 3 (a "
    "limit) and 130 the same command goes on where it stopped."
)


def label(
    data: Annotated[str, typer.Argument(metavar="DATA", help="JSON Lines, plain or gzip; see 'convert' for others.")],
    output: Annotated[Path, output_file("Where the labelled records go.")],
    judge_url: Annotated[
        str | None, typer.Option(metavar="URL", help="An OpenAI-compatible endpoint, such as http://localhost:8000/v1.")
    ] = None,
    judge_model: Annotated[str | None, typer.Option(metavar="NAME", help="The judge's name there.")] = None,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The environment variable that holds the API key.")
    ] = None,
    gold_answers: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="No judge: a response is right if it holds an answer of this field."),
    ] = None,
    whole_words: Annotated[
        bool, typer.Option("--whole-words", help="A gold answer must not stand inside a longer word.")
    ] = False,
    occurrences: Annotated[
        Literal["all", "first"], typer.Option(help="Which places of an unsupported stretch to label.")
    ] = "all",
    relabel: Annotated[bool, typer.Option("--relabel", help="Also label records that have labels.")] = False,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Requests at once.")] = 4,
    timeout: Annotated[float, typer.Option(help="Seconds that a request may take.")] = 60.0,
    retries: Annotated[int, typer.Option(min=0, help="Repeats after 429, 5xx or a time-out.")] = 5,
    attempts: Annotated[int, typer.Option(min=1, help="How often a judge that answers nonsense is asked.")] = 3,
    max_requests: Annotated[int | None, typer.Option(min=1, help="Stop after so many answers.")] = None,
    max_cost: Annotated[float | None, typer.Option(help="Stop when this run has cost so much.")] = None,
    price_in: Annotated[float | None, typer.Option(help="Price of a million tokens read.")] = None,
    price_out: Annotated[float | None, typer.Option(help="Price of a million tokens written.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N records.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Discard an earlier output and start again.")] = False,
) -> None:
    """Label which stretches of responses their context does not support.

    A judge (--judge-url and --judge-model) is asked for the unsupported stretches; each is looked up in the response
    word for word, and one that is not there is noted in the record. With --gold-answers a response is hallucinated
    if none of its gold answers stands in it. Records that have labels keep them.
    """
    from groundscope.cli.records.label_file import GoldLabeller, JudgeLabeller, LabelRun

    _check_prices(price_in, price_out, max_cost)
    prices = None if price_in is None or price_out is None else (price_in, price_out)
    if (gold_answers is None) == (judge_url is None and judge_model is None):
        raise InputError("Give either --judge-url and --judge-model, or --gold-answers FIELD.")
    labeller: GoldLabeller | JudgeLabeller
    if gold_answers is not None:
        labeller = GoldLabeller(gold_answers, whole_words)
    else:
        from groundscope.data.labelling.judge import Judge

        if judge_url is None or judge_model is None:
            raise InputError("--judge-url and --judge-model go together. Give both.")
        labeller = JudgeLabeller(
            Judge(
                judge_url,
                judge_model,
                api_key=_key(api_key_env),
                timeout=timeout,
                max_retries=retries,
                attempts=attempts,
                occurrences=occurrences,
                max_requests=max_requests,
            )
        )
    run = LabelRun(Path(data), output, labeller, concurrency, prices, max_cost, limit, relabel, overwrite)
    raise typer.Exit(run.execute())


def _check_prices(price_in: float | None, price_out: float | None, max_cost: float | None) -> None:
    for name, value in (("--price-in", price_in), ("--price-out", price_out), ("--max-cost", max_cost)):
        if value is not None and not (is_finite(value) and value >= 0):
            raise InputError(f"{name} must be a number of at least 0. Got {value!r} instead.")
    if (price_in is None) != (price_out is None):
        raise InputError("--price-in and --price-out go together. Give both.")
    if max_cost is not None and price_in is None:
        raise InputError("--max-cost needs --price-in and --price-out, the prices of a million tokens.")


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise InputError(f"The environment variable {variable!r}, named by --api-key-env, is not set.")
    return key
