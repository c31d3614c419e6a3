"""``groundscope audit``: what is wrong with a data set, and what its labels give away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from groundscope.data.checking.audit import AuditReport, Finding, Rate

EPILOG = (
    "Exit codes. 0: no problems (there may be warnings). 1: problems were found: records that cannot be read, wrong "
    "labels, contexts or sources in more than one split. 2: wrong use or refused input."
)
_EXIT_PROBLEMS = 1
_HEADINGS = {"task": "task", "model": "generator", "split": "split"}


def audit(
    data: Annotated[
        list[str], typer.Argument(metavar="DATA...", help="Files of one data set, in any format of 'convert'.")
    ],
    against: Annotated[
        list[str] | None,
        typer.Option("--against", metavar="OTHER", help="A set that DATA must not overlap with; repeat for more."),
    ] = None,
    source_format: Annotated[
        str | None, typer.Option("--from", metavar="FORMAT", help="See 'groundscope convert'.")
    ] = None,
    format: Annotated[  # noqa: A002
        Literal["text", "json"], typer.Option("--format", help="How to print the report.")
    ] = "text",
) -> None:
    """Check labels, offsets, duplicates and leaks; show base rates, lengths and what words alone predict.

    The controls are the AUROC of response length, of the share of words that stand in neither passages nor
    question, and of the base rates of task and generator. A detector has to beat them.
    """
    from groundscope.data.checking.audit import audit as run
    from groundscope.data.loaders.registry import read_examples
    from groundscope.errors import InputError
    from groundscope.trace.storage.store import is_store

    for path in [*data, *(against or ())]:
        if is_store(path):
            raise InputError(
                f"{str(path)!r} is a trace store, and an audit reads records. Give the file that it was made from."
            )
    others = {Path(other).name: read_examples([other]) for other in against or ()}
    report = run(read_examples(data, source_format), others)
    if format == "json":
        print(json.dumps(report.to_dict(), ensure_ascii=False, indent=2, allow_nan=False))
    else:
        print("\n".join(_text(report)))
    if report.problems:
        raise typer.Exit(_EXIT_PROBLEMS)


def _text(report: AuditReport) -> Iterator[str]:
    total = report.rates["all"]["all"]
    yield f"{report.examples} examples of {report.sources} sources, {_share(total)}"
    yield "label kinds: " + ", ".join(f"{count} {name}" for name, count in sorted(report.label_kinds.items()))
    for name, values in report.lengths.items():
        yield f"{name} words: median {values['median']:.0f}, 95th percentile {values['p95']:.0f}"
    for key, heading in _HEADINGS.items():
        if len(report.rates[key]) > 1:
            yield ""
            yield f"by {heading}"
            width = max(map(len, report.rates[key]))
            yield from (f"  {name:{width}}  {_share(rate)}" for name, rate in report.rates[key].items())
    yield ""
    yield "controls (AUROC)"
    for name, value in report.controls.items():
        yield f"  {name:15} {'-' if value is None else f'{value:.3f}'}"
    yield ""
    warnings = [finding for finding in report.findings if not finding.problem]
    for heading, found in (("problems", report.problems), ("warnings", warnings)):
        yield heading if found else f"no {heading}"
        for finding in found:
            yield from _finding(finding)


def _finding(finding: Finding) -> Iterator[str]:
    yield f"  {finding.name} ({finding.count}): {finding.message}"
    for place in finding.where[:5]:
        yield f"    {place}"
    if finding.where and finding.count > 5:
        yield f"    ... and {finding.count - 5} more"


def _share(rate: Rate) -> str:
    labelled = f"{rate.labelled} labelled" if rate.labelled != rate.examples else f"{rate.examples} labelled"
    share = "" if rate.rate is None else f" ({100 * rate.rate:.1f} %)"
    return f"{labelled}, {rate.hallucinated} hallucinated{share}"
