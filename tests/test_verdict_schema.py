from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, ValidationError

from groundscope import verdict as verdict_module
from groundscope import verdict_parts
from groundscope.verdict import (
    OUTCOMES,
    SCHEMA_VERSION,
    Evidence,
    Nearest,
    Reason,
    SentenceScore,
    Span,
    Threshold,
    TokenScore,
    Unscored,
    Verdict,
)

SCHEMA = json.loads((Path(__file__).parents[1] / "docs" / "verdict.schema.json").read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)

SCORED = Verdict(
    outcome="partial",
    response="In 1887. Then",
    score=1.5,
    flagged=True,
    aggregation="mean",
    detector="contrast",
    model="smollm2-135m",
    threshold=Threshold(1.0, 0.5, "a reference sample"),
    tokens=(TokenScore(0, 2, "In", -1.0), TokenScore(2, 7, " 1887", 2.0)),
    spans=(Span(3, 7, "1887", 2.0, (Evidence(0, 0.75),)),),
    sentences=(SentenceScore(0, 8, "In 1887.", 0.5, True), SentenceScore(9, 13, "Then", None, False)),
    unscored=(Unscored(9, 13, "cut off"),),
    message="Only the first sentence was read.",
    contrast={"seed": 0},
    id="a",
    question="When?",
    passages=("In 1889.",),
)
WHY = (Reason("text", 1.25, "'1887' stands in no passage"), Reason("attention", -0.5, "attention on the passages"))
JUDGED = dataclasses.replace(
    SCORED,
    threshold=Threshold(1.0, 0.5, "a profile", 0.25, 0.61, 0.4),
    spans=(Span(3, 7, "1887", 2.0, (Evidence(0, 0.75),), 0.9, WHY, Nearest(0, 0, 8, 0.5)),),
    sentences=(
        SentenceScore(0, 8, "In 1887.", 0.5, True, 0.9, WHY, Nearest(0, 0, 8, 0.5)),
        SentenceScore(9, 13, "Then", -1.0, False, 0.0),
    ),
    probability=0.83,
    profile="RAGTruth answers",
)
NOT_SCORED = Verdict("no_answer", "", None, None, "mean", "contrast", "smollm2-135m", message="Empty.")
SENTENCE = JUDGED.to_dict()["sentences"][0]


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("verdict", [SCORED, JUDGED, NOT_SCORED])
@pytest.mark.parametrize("include_context", [True, False])
def test_verdicts_satisfy_the_schema(verdict: Verdict, include_context: bool) -> None:
    record = json.loads(json.dumps(verdict.to_dict(include_context), allow_nan=False))
    VALIDATOR.validate(record)
    if include_context:
        assert Verdict.from_dict(record) == verdict


@pytest.mark.parametrize("outcome", ["no_answer", "no_context", "too_long", "failed"])
def test_an_outcome_without_score_must_not_carry_one(outcome: str) -> None:
    VALIDATOR.validate(NOT_SCORED.to_dict() | {"outcome": outcome})
    for wrong in ({"score": 0.0}, {"flagged": False}, {"probability": 0.5}):
        with pytest.raises(ValidationError):
            VALIDATOR.validate(NOT_SCORED.to_dict() | {"outcome": outcome} | wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"outcome": "clean"},
        {"score": None},
        {"schema_version": 1},
        {"schema_version": 3},
        {"probability": 1.5},
        {"profile": None},
        {"sentences": [SENTENCE | {"reasons": [{"group": "text", "weight": 1.0}]}]},
        {"sentences": [SENTENCE | {"nearest": {"passage": 0, "start": 0, "end": 8, "overlap": 2}}]},
        {"sentences": [SENTENCE | {"probability": -0.1}]},
        {"surprise": 1},
        {"tokens": [{"start": -1, "end": 0, "text": "", "score": 0}]},
        {"spans": [{"start": 0, "end": 1, "text": "I", "score": 1, "evidence": [{"passage": 0, "weight": 1.5}]}]},
    ],
)
def test_what_is_not_a_verdict_is_refused(wrong: dict) -> None:
    with pytest.raises(ValidationError):
        VALIDATOR.validate(SCORED.to_dict() | wrong)


def test_the_schema_describes_every_field_and_no_other() -> None:
    classes = {
        name: item
        for module in (verdict_module, verdict_parts)
        for name, item in vars(module).items()
        if dataclasses.is_dataclass(item) and item.__module__ == module.__name__
    }
    described = {
        "Verdict": SCHEMA,
        **{name: item for name, item in SCHEMA["$defs"].items() if name[0].isupper()},
    }
    assert set(described) == set(classes)
    for name, item in classes.items():
        schema = described[name]
        fields = {field.name for field in dataclasses.fields(item)}
        properties = schema["properties"]
        assert set(properties) - {"schema_version"} == fields, name
        assert all(value.get("description") for value in properties.values()), name
        assert schema["additionalProperties"] is False
        left_out = {"question", "passages"} if name == "Verdict" else set()
        assert set(schema["required"]) == set(properties) - left_out
    assert SCHEMA["properties"]["schema_version"]["const"] == SCHEMA_VERSION
    assert tuple(SCHEMA["properties"]["outcome"]["enum"]) == OUTCOMES
