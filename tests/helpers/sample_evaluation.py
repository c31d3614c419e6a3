"""A small evaluation with everything that a report may have to show, hostile names among them."""

from __future__ import annotations

from groundscope.evaluate.metrics.bootstrap import Estimate
from groundscope.evaluate.results.results import (
    Anatomy,
    Comparison,
    CrossRow,
    CrossTable,
    Evaluation,
    Figure,
    Lines,
    Macro,
    Measured,
    Row,
)

HOSTILE = "<script>alert(1)</script> | $x$ \x1b[31m"


def measured(level: str, value: float, by: str = "pooled", slice_: str = "") -> Measured:
    figure = Estimate(value, value - 0.1, value + 0.05)
    span = level == "span"
    return Measured(
        level,
        by,
        slice_,
        units=100,
        positives=30,
        sources=20,
        auroc=None if span else figure,
        auprc=None if span else figure,
        pearson=None if span else Estimate(0.2),
        precision=figure,
        recall=figure,
        f1=figure,
        iou=figure if span else None,
        best_f1_on_test=None if span else 0.71,
        always_positive_f1=0.46,
    )


def row(name: str, kind: str, value: float) -> Row:
    return Row(
        name,
        kind,
        "untrained",
        {"weight": 0.5, "note": HOSTILE},
        measured=(
            measured("response", value),
            measured("span", value / 2),
            measured("response", value, "task", "qa"),
            measured("response", value, "task", HOSTILE),
        ),
        macros=(Macro("response", "task", "auroc", 2, Estimate(value), Estimate(value)),),
        lines=(Lines(response=0.5, span=0.25),),
    )


def sample() -> Evaluation:
    figure = Figure(
        "probe",
        "response",
        roc=((0.0, 0.0), (0.5, 0.8), (1.0, 1.0)),
        pr=((0.0, 1.0), (1.0, 0.3)),
        edges=(0.0, 0.5, 1.0),
        faithful=(1.5, 0.5),
        hallucinated=(0.5, 1.5),
        calibration=((0.2, 0.1, 10), (0.7, 0.9, 5)),
    )
    cross = CrossTable(
        "response",
        ("qa", HOSTILE),
        (60, 40),
        (
            CrossRow("probe", "method", ((0.7, 0.6), (0.5, None)), (0.0, None)),
            CrossRow("word novelty", "control", ((0.8, 0.6), (0.8, 0.6)), (None, None)),
        ),
        left_out=3,
    )
    return Evaluation(
        data={
            "examples": 100,
            "positives": 30,
            "sources": 20,
            "unlabelled": 1,
            "readers": ["tiny"],
            "label_kinds": {"span": 100},
            "datasets": {"towers": 100},
            "tasks": {"qa": 60, HOSTILE: 40},
            "generators": {"writer": 100},
        },
        protocol={
            "groundscope": "0",
            "split": "folds",
            "folds": 2,
            "sizes": [[40, 10, 50], [40, 10, 50]],
            "objective": "f1",
            "levels": ["span", "response"],
            "resamples": 100,
            "confidence": 0.95,
            "seed": 0,
        },
        rows=(
            row("probe", "method", 0.6),
            Row(HOSTILE, "method", "cross-fitted", {}, failure=f"it said {HOSTILE}"),
            row("word novelty", "control", 0.7),
        ),
        comparisons=(Comparison("response", "auroc", "probe", "word novelty", Estimate(-0.1, -0.2, -0.01), 0.02),),
        cross=(cross,),
        findings=("response level, probe (AUROC 0.600): word novelty clearly beats it (0.700).",),
        figures=(figure,),
        anatomies=(
            Anatomy(
                "probe",
                head_weights=((0.1, -0.2), (0.0, 0.3)),
                layer_weights=(0.15, 0.15),
                pairs=((0.1, 0.2, 0), (0.3, 0.1, 1), (0.2, 0.2, 0)),
            ),
        ),
    )
