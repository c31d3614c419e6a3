"""An evaluation for the terminal: the main figures and what must not be overlooked."""

from __future__ import annotations

from groundscope.evaluate.results.findings import beats
from groundscope.evaluate.results.results import Evaluation
from groundscope.report.evaluation.tables import show
from groundscope.report.safe_text import visible

_MOST_FINDINGS = 8


def format_evaluation(evaluation: Evaluation) -> str:
    """Return the pooled figures of every row, best first at each level, and the first findings."""
    data = evaluation.data
    lines = [f"{data['examples']} answers, {data['positives']} hallucinated, {data['sources']} sources"]
    measured = [row for row in evaluation.rows if row.failure is None]
    width = max((len(row.name) for row in evaluation.rows), default=0)
    for level, metric in (("response", "AUROC"), ("span", "F1"), ("window", "AUROC"), ("token", "AUROC")):
        entries = [
            (estimate.value if estimate.value is not None else -1.0, row, show(estimate))
            for row in measured
            if (item := row.at(level)) and (estimate := item.f1 if level == "span" else item.auroc)
        ]
        if entries:
            lines += ["", f"{level} level, {metric}"]
        for _, row, shown in sorted(entries, key=lambda entry: -entry[0]):
            kind = "control" if row.kind == "control" else row.fitting
            beaten = ", ".join(beats(row, measured, level)) if row.kind == "method" else ""
            lines.append(f"  {row.name:{width}}  {kind:12}  {shown:20}{'  beaten by: ' + beaten if beaten else ''}")
    notes = [item for row in evaluation.rows if row.failure is not None for item in (f"{row.name}: {row.failure}",)]
    if notes:
        lines += ["", "No figures", *(f"  {item}" for item in notes)]
    if evaluation.findings:
        lines += ["", "Findings", *(f"  {item}" for item in evaluation.findings[:_MOST_FINDINGS])]
        more = len(evaluation.findings) - _MOST_FINDINGS
        if more > 0:  # what beats what stands in the table above, too
            lines.append(f"  ... and {more} more in the report")
    return "\n".join(visible(line).rstrip() for line in lines)
