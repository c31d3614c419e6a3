"""The four hypotheses on a tiny model: what is read under what, and what can be told from it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from groundscope import Example
from groundscope.data.contrast import draw_contrasts
from groundscope.errors import InputError
from groundscope.evaluate.hypotheses import validation
from groundscope.evaluate.hypotheses.predictions import HYPOTHESES
from groundscope.evaluate.hypotheses.validation import ValidationOptions, validate
from groundscope.evaluate.protocol.conditions import ConditionReader
from groundscope.trace.trace import Trace

RATE = "information_processing_rate_calibrated"


def some_examples(per_task: int = 6) -> list[Example]:
    rng = np.random.default_rng(0)
    examples = []
    for task in ("qa", "summarization", "data2text"):
        for number in range(per_task):
            year, name = int(rng.integers(1500, 1999)), f"{task} tower {number}"
            examples.append(
                Example(
                    "When was it finished?" if task == "qa" else "",
                    (f"The {name} was completed in {year}.", "Bees make honey from nectar."),
                    f"The {name} was finished in {year}.",
                    id=name,
                    task=task,
                    source_id=name,
                )
            )
    return examples


EXAMPLES = some_examples()
OPTIONS = ValidationOptions(resamples=50, generate=True, max_new_tokens=6)


def by_name(found):
    return {item.name: item for item in found.tested}


def test_an_external_signal_is_tested_on_tasks_and_on_answers_of_its_own(tiny):
    found = validate(tiny, EXAMPLES, "mmd", OPTIONS)
    tested = by_name(found)
    assert list(tested) == ["H1", "H2"] and not found.unread
    second = tested["H1"].real.second
    assert second.tokens > 0 and 0 < second.responses <= 6
    assert tested["H2"].real.first.responses == tested["H2"].placebo.first.responses == 6
    assert found.data == {
        "examples": 18,
        "left_out": 0,
        "sources": 18,
        "tasks": {"data2text": 6, "qa": 6, "summarization": 6},
    }
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["tested"][1]["outcome"] == tested["H2"].outcome()


def test_figures_are_those_of_readings_made_by_hand(tiny):
    found = by_name(validate(tiny, EXAMPLES, RATE, OPTIONS))
    renderer = tiny.renderer()

    def read(passages_of):
        layouts = [renderer.layout(replace(e, passages=passages_of(e))) for e in EXAMPLES]
        return [trace[RATE].astype(np.float64) for trace in tiny.trace(layouts, [RATE])]

    with_documents, without = read(lambda e: e.passages), read(lambda e: ())
    placebo = read(lambda e: draw_contrasts(e, EXAMPLES, 0, 2, match_length=True)[-1].passages)
    h3 = found["H3"]
    assert h3.real.paired and h3.real.first.responses == 18
    for comparison, other in ((h3.real, with_documents), (h3.placebo, placebo)):
        want = np.concatenate(without).mean() - np.concatenate(other).mean()
        assert comparison.difference.value == pytest.approx(want, rel=1e-4, abs=1e-6)
    want = np.concatenate(with_documents[12:]).mean() - np.concatenate(with_documents[6:12]).mean()
    assert found["H4"].real.difference.value == pytest.approx(want, rel=1e-4, abs=1e-6)
    assert h3.excess.value == pytest.approx(h3.real.difference.value - h3.placebo.difference.value)


def test_the_same_document_on_both_sides_shifts_nothing(tiny):
    reader = ConditionReader(tiny, ("mmd",))
    documents = [draw_contrasts(e, EXAMPLES, 0)[0].passages for e in EXAMPLES]
    for trace in reader.read(EXAMPLES, documents, [[document] for document in documents]):
        assert isinstance(trace, Trace) and not trace["mmd"].any()


def test_a_placebo_of_the_passages_themselves_leaves_no_excess(tiny, monkeypatch):
    class Same:
        def __init__(self, passages):
            self.passages = passages

    monkeypatch.setattr(validation, "draw_contrasts", lambda example, *a, **k: [Same(("Rice is a grain.",)), example])
    for name in ("mmd", RATE):
        for item in validate(tiny, EXAMPLES, name, OPTIONS).tested:
            assert item.excess.value == item.excess.low == item.excess.high == 0
            assert item.real == item.placebo and item.outcome() in ("no", "as in placebo")


def test_what_cannot_be_tested_says_why(tiny):
    qa = [e for e in EXAMPLES if e.task == "qa"]
    tested = by_name(validate(tiny, qa, "mmd", replace(OPTIONS, generate=False)))
    assert "--generate" in tested["H1"].reason and "'summarization'" in tested["H2"].reason
    assert {item.outcome() for item in tested.values()} == {"not testable"}
    assert "zero by definition" in by_name(validate(tiny, qa, "external_context_score", OPTIONS))["H1"].reason
    attention = by_name(validate(tiny, qa, validation.Quantity.parse("aggtruth_sum", "internal"), OPTIONS))
    assert "zero by definition" in attention["H3"].reason
    asked = [replace(e, question="") for e in qa]
    assert "no example has a question" in by_name(validate(tiny, asked, "mmd", OPTIONS))["H1"].reason


def test_one_bad_example_loses_no_other(make_tiny):
    short = make_tiny(context=400)
    long = replace(EXAMPLES[0], passages=("The river rises in the mountains. " * 60,), id="long", source_id="long")
    refusal = replace(EXAMPLES[1], response="I cannot answer this question.", id="no", source_id="no")
    found = validate(short, [*EXAMPLES, long, refusal], RATE, OPTIONS)
    assert found.data["examples"] == 19 and found.data["left_out"] == 1
    assert sum(found.unread.values()) >= 1 and all("ContextTooLong" in reason for reason in found.unread)
    assert by_name(found)["H3"].real.first.responses >= 12


def test_answers_of_its_own_are_the_same_every_time(tiny):
    reader = ConditionReader(tiny, ("mmd",))
    once, again = (reader.answer_without_passages(EXAMPLES[0], 8) for _ in range(2))
    assert once == again and once.passages == EXAMPLES[0].passages and once.response != EXAMPLES[0].response
    with pytest.raises(InputError, match="no question"):
        reader.answer_without_passages(replace(EXAMPLES[0], question=" "), 8)


def test_few_sources_are_not_enough_for_a_verdict(tiny):
    found = validate(tiny, EXAMPLES[:3], RATE, OPTIONS)
    (h3, _) = found.tested
    assert h3.outcome() == "too few sources" and "3 sources" in h3.notes[0]
    with pytest.raises(InputError, match="Nothing can be validated"):
        validate(tiny, [replace(EXAMPLES[0], passages=())], RATE)
    with pytest.raises(InputError, match="'cluster'"):
        ValidationOptions(cluster="token")


def test_clusters_may_be_responses(tiny):
    copies = [replace(e, id=f"{e.id} {i}") for e in EXAMPLES[:6] for i in range(2)]
    by_source, by_response = (
        validate(tiny, copies, RATE, replace(OPTIONS, cluster=cluster)).tested[0].real
        for cluster in ("source", "response")
    )
    assert (by_source.first.sources, by_response.first.sources) == (6, 12)
    assert by_source.difference.value == by_response.difference.value
    assert by_source.design_effect > by_response.design_effect


def test_hypotheses_are_those_of_the_paper():
    assert [(h.name, h.role, h.paired) for h in HYPOTHESES] == [
        ("H1", "external", False), ("H2", "external", False), ("H3", "internal", True), ("H4", "internal", False),
    ]  # fmt: skip
    for item in HYPOTHESES:
        conditions = {group.condition for group in item.placebo}
        assert "documents" not in conditions and "placebo" in conditions
