"""Score real RAG answers with a real language model and show what it finds beside what people marked.

    python examples/demo.py [--output report.html]

Eight answers of RAGTruth's question answering part (see NOTICE) are read by the embedded model. Marked
⟦like this⟧ is what groundscope finds unsupported; below it, what the annotators marked.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import groundscope as gs
from groundscope.data.jsonl import read_records
from groundscope.report.html import write_page
from groundscope.report.terminal import format_verdict

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
        print(f"{example.id}  (written by {example.model})\nQuestion: {example.question}")
        print(format_verdict(verdict, labels=example.labels), end="\n\n")
        verdicts.append(verdict)
    seconds = time.perf_counter() - start
    wrong = [bool(example.labels) for example in examples]
    touched = [
        any(
            span.start < label.end and label.start < span.end
            for span in verdict.spans
            for label in example.labels or ()
        )
        for verdict, example in zip(verdicts, examples, strict=True)
    ]
    marked = [bool(verdict.spans) for verdict in verdicts]
    write_page(
        arguments.output,
        verdicts,
        title="groundscope: eight answers from RAGTruth",
        labels=[example.labels for example in examples],
    )
    print(
        f"{len(verdicts)} answers in {seconds:.0f} s. People marked something in {sum(wrong)} of them: "
        f"{sum(v.flagged is True and w for v, w in zip(verdicts, wrong, strict=True))} of these are flagged as a whole, "
        f"and in {sum(touched)} a span overlaps what they marked. Of the {len(wrong) - sum(wrong)} others "
        f"{sum(v.flagged is True and not w for v, w in zip(verdicts, wrong, strict=True))} are flagged, "
        f"{sum(m and not w for m, w in zip(marked, wrong, strict=True))} hold a span. "
        f"Open {arguments.output} for the passages behind each span."
    )


if __name__ == "__main__":
    main()
