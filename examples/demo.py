"""Score real RAG answers with a real language model and show what it finds beside what people marked.

    python examples/demo.py [--output report.html]

Eight answers of RAGTruth's question answering part (see NOTICE) are read by the embedded model. Marked
⟦like this⟧ is what groundscope finds unsupported; below it, what the annotators marked.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import groundscope as gs
from groundscope.data.jsonl import read_records
from groundscope.report.verdict.html import write_page
from groundscope.report.verdict.terminal import format_verdict

SAMPLE = Path(__file__).parent / "ragtruth_qa_sample.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("report.html"))
    arguments = parser.parse_args()
    examples = [record for record in read_records(SAMPLE) if isinstance(record, gs.Example)]
    scope = gs.Scope.from_pretrained("smollm2-135m")
    start = time.perf_counter()
    verdicts = []
    for example, verdict in zip(examples, scope.score_many(examples), strict=True):
        print(f"{example.id}  (written by {example.model})")
        print(format_verdict(verdict, labels=example.labels), end="\n\n")
        verdicts.append(verdict)
    seconds = time.perf_counter() - start
    write_page(
        arguments.output,
        verdicts,
        title="groundscope: eight answers from RAGTruth",
        labels=[example.labels for example in examples],
    )
    print(f"{len(verdicts)} answers in {seconds:.0f} s. {counts(examples, verdicts)}")
    print(f"Open {arguments.output} for the passages behind each span.")


def counts(examples: Sequence[gs.Example], verdicts: Sequence[gs.Verdict]) -> str:
    """Say how flags and spans meet what people marked."""
    wrong = [(e, v) for e, v in zip(examples, verdicts, strict=True) if e.labels]
    right = [v for e, v in zip(examples, verdicts, strict=True) if not e.labels]
    found = sum(
        any(span.start < label.end and label.start < span.end for span in v.spans for label in e.labels or ())
        for e, v in wrong
    )
    return (
        f"People marked something in {len(wrong)} of them: {sum(bool(v.flagged) for _, v in wrong)} of these are "
        f"flagged as a whole, and in {found} a span overlaps what people marked. Of the other {len(right)}, "
        f"{sum(bool(v.flagged) for v in right)} are flagged and {sum(bool(v.spans) for v in right)} hold a span."
    )


if __name__ == "__main__":
    main()
