"""An analysis as Markdown that people can read: the figures of ``analysis.json``, shortened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from groundscope.analyse.differences import PlaceDifference, SignalDifferences
from groundscope.analyse.intervention import Intervention
from groundscope.analyse.robustness import Robustness
from groundscope.analyse.run import Analysis
from groundscope.evaluate.metrics.bootstrap import Difference, Estimate

# Places shown of each signal; all are in analysis.json.
_SHOWN = 10


def markdown(found: Analysis) -> str:
    """Return the report."""
    tasks = ", ".join(f"{count} {name}" for name, count in found.data["tasks"].items())
    lines = ["# Analysis", "", f"{found.data['examples']} labelled responses ({tasks})."]
    unread, bad = len(found.data["unread"]), len(found.data["bad_lines"])
    if unread or bad:
        lines.append(f"{unread} could not be read; {bad} lines hold no record.")
    lines += [f"Note: {note}." for note in found.notes]
    for item in found.differences:
        lines += ["", *_differences(item)]
    for how, done in found.interventions:
        lines += ["", *_intervention(how, done)]
    if found.robustness is not None:
        lines += ["", *_robustness(found.robustness)]
    return "\n".join(lines) + "\n"


def _differences(found: SignalDifferences) -> Iterator[str]:
    yield f"## {found.signal}: faithful minus hallucinated"
    yield ""
    what = "heads" if found.places and found.places[0].head is not None else "layers"
    yield (
        f"{found.responses} responses, {found.hallucinated} hallucinated, {found.sources} sources. "
        f"Higher when faithful: {found.higher_when_faithful} of {len(found.places)} {what}. "
        f"Different after Holm's adjustment (0.05): {len(found.significant())}."
    )
    if found.copying is not None:
        relation = found.copying
        yield (
            f"Copying score against difference: r = {interval(relation.difference)}, of ranks "
            f"{interval(relation.difference_ranks)}; against correlation with being faithful: "
            f"{interval(relation.label)} ({relation.heads} heads)."
        )
    yield ""

    def first(place: PlaceDifference) -> float:
        return 2.0 if place.p is None else place.p

    rows = [
        (_place(p), interval(p.difference), _p(p.p), _p(p.p_holm), _p(p.p_bh), interval(p.pearson))
        for p in sorted(found.places, key=first)[:_SHOWN]
    ]
    yield from _table(("place", "difference", "p", "p (Holm)", "p (BH)", "r with hallucinated"), rows)


def _intervention(how: str, found: Intervention) -> Iterator[str]:
    yield f"## Intervention: {found.change}"
    yield ""
    names = ", ".join(".".join(map(str, place)) for place in found.chosen)
    yield f"Changed: {names} ({how}), where the {'answer is' if found.rows == 'response' else 'prompt and answer are'} "
    yield f"read. Control: as many others, {len(found.controls)} draws. Nats per token of the answer."
    yield ""
    rows = [
        (
            group.group,
            str(group.responses),
            interval(group.unchanged),
            interval(group.chosen),
            interval(group.control),
            f"{min(group.control_draws):.3f} to {max(group.control_draws):.3f}",
            difference(group.difference),
        )
        for group in found.groups
    ]
    headings = ("answers", "number", "unchanged", "change: chosen", "change: control", "by draw", "chosen - control")
    yield from _table(headings, rows)
    if found.faithful_minus_hallucinated is not None:
        yield ""
        yield f"Faithful minus hallucinated (chosen - control): {difference(found.faithful_minus_hallucinated)}."


def _robustness(found: Robustness) -> Iterator[str]:
    yield f"## Robustness of {found.detector}"
    yield ""
    yield f"{found.responses} responses, {found.hallucinated} hallucinated, {found.sources} sources."
    yield ""
    rows = [
        (p.axis, p.value, interval(p.auroc), interval(p.auprc), "" if p is found.base else difference(p.change))
        for p in (found.base, *found.points)
    ]
    yield from _table(("axis", "value", "AUROC", "AUPRC", "change of AUROC"), rows)


def interval(found: Estimate) -> str:
    """Return a figure with its interval."""
    if found.value is None:
        return "-"
    return f"{found.value:.3f}" + ("" if found.low is None else f" [{found.low:.3f}, {found.high:.3f}]")


def difference(found: Difference) -> str:
    """Return a difference with its interval and p."""
    return interval(found.estimate) + ("" if found.p is None else f", p = {found.p:.2g}")


def _place(place: PlaceDifference) -> str:
    return str(place.layer) if place.head is None else f"{place.layer}.{place.head}"


def _p(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(headings) + " |"
    yield "|" + "---|" * len(headings)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
