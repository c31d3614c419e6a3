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
    agreed = sum(v.flagged == e.hallucinated for v, e in zip(verdicts, examples, strict=True))
    write_page(
        arguments.output,
        verdicts,
        title="groundscope: eight answers from RAGTruth",
        labels=[example.labels for example in examples],
    )
    print(
        f"{len(verdicts)} answers in {seconds:.0f} s; on {agreed} of them groundscope and the annotators agree "
        f"whether something is unsupported. Open {arguments.output} for the passages behind each span."
    )


if __name__ == "__main__":
    main()
