"""The audit of data sets whose faults are known."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from groundscope.data.checking.audit import audit
from groundscope.data.checking.overlap import contexts_of, near_pairs, similarity
from groundscope.data.jsonl import BadRecord
from groundscope.errors import InputError
from groundscope.example import Example, Label

WORDS = [f"word{n}" for n in range(3000)]


def text(seed, words=120):
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def example(number, **more):
    fields = {"source_id": str(number), "split": "train" if number % 2 else "test", "id": str(number)}
    fields |= {"passages": (text(number),), "response": f"Answer {number}.", "hallucinated": number % 3 == 0}
    return Example(**{"question": "q", **fields, **more})


def names(report, problem=None):
    return {finding.name for finding in report.findings if problem is None or finding.problem is problem}


CLEAN = [example(number) for number in range(12)]


def test_clean_data():
    report = audit(CLEAN)
    assert report.findings == () and report.problems == ()
    assert (report.examples, report.sources, report.label_kinds) == (12, 12, {"response": 12})
    assert report.lengths["context"] == {"median": 120, "p95": 120}
    rate = report.rates["split"]["test"]
    assert (rate.examples, rate.labelled, rate.hallucinated, rate.rate) == (6, 6, 2, 2 / 6)
    json.dumps(report.to_dict(), allow_nan=False)


def test_records_that_cannot_be_read_are_a_problem():
    report = audit([*CLEAN, BadRecord(13, "broken")])
    (finding,) = report.problems
    assert (finding.name, finding.count, finding.where) == ("not readable", 1, ("record 13: broken",))
    with pytest.raises(InputError, match=r"no example to audit; 1 records could not be read. The first record: broken"):
        audit([BadRecord(1, "broken")])


def test_wrong_labels_are_named_with_ids():
    wrong = [example(20, hallucinated=False, labels=(Label(0, 3),)), example(21, labels=(Label(1, 6),))]
    found = {finding.name: finding for finding in audit([*CLEAN, *wrong]).findings}
    assert found["flag contradicts labels"].where == ("20",) and found["flag contradicts labels"].problem
    assert found["label cuts a word"].count == 2 and not found["label cuts a word"].problem


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"source_id": "2", "passages": (text(99),)}, "source in several splits"),
        ({"passages": (text(2).upper() + "!",)}, "context in several splits"),
        ({"passages": (text(2) + " and a few words more",)}, "near-duplicate in several splits"),
        ({"passages": ("\n".join([text(2)[:300], text(2)[300:]]),)}, "context in several splits"),
    ],
)
def test_leaks_between_splits(change, name):
    extra = example(31, response="Something else.", **change)
    report = audit([*CLEAN, extra])
    (finding,) = report.problems
    assert finding.name == name and "test and train (1)" in finding.message
    assert set(finding.where[0].split(", ")) == {"2", "31"}
    # The same within one split is a warning at most.
    assert audit([*CLEAN, replace(extra, split="test")]).problems == ()


def test_other_sets_are_compared_but_not_among_themselves():
    other = [example(40, passages=(text(3),)), example(41, source_id="x"), example(42, source_id="x", split="train")]
    report = audit(CLEAN, {"other.jsonl": other})
    (finding,) = report.problems
    assert finding.name == "context in several splits" and "other set other.jsonl and train (1)" in finding.message
    assert report.examples == 12


def test_the_same_context_under_several_sources_is_a_warning():
    found = names(audit([*CLEAN, example(52, passages=(text(2),))]))
    assert found == {"context under several sources"}
    near = example(54, passages=(text(2) + " and a few words more",))
    assert names(audit([*CLEAN, near])) == {"near-duplicate contexts"}


def test_repeated_answers():
    again = replace(CLEAN[2], id="again")
    assert names(audit([*CLEAN, again])) == {"repeated examples"}
    contradiction = replace(again, hallucinated=True)
    assert names(audit([*CLEAN, contradiction])) == {"repeated examples", "contradictory labels"}
    assert names(audit([*CLEAN, example(60, response="ANSWER 2")])) == {"repeated answers"}


def test_controls_equal_their_definition_and_warn_when_strong():
    rng = random.Random(5)
    long = [
        example(n, response=" ".join(rng.choices(WORDS, k=rng.randint(3, 9) + 6 * (n % 3 == 0)))) for n in range(60)
    ]
    report = audit(long)
    labels = [item.hallucinated for item in long]
    expected = roc_auc_score(labels, [len(item.response.split()) for item in long])
    assert report.controls["response words"] == pytest.approx(expected) and expected > 0.65
    assert "strong control: response words" in names(report, problem=False)
    assert report.controls["task only"] is None and report.controls["generator only"] is None
    short = [replace(item, response=" ".join(item.response.split()[:3])) for item in long]
    assert "strong control: response words" not in names(audit(short))


def test_a_short_answer_gives_it_away_too():
    items = [example(n, response="No." if n % 3 == 0 else f"A long answer {n}") for n in range(30)]
    report = audit(items)
    assert report.controls["response words"] == 0.0 and "strong control: response words" in names(report)


def test_generator_and_task_are_judged_by_other_sources():
    items = [example(n, model="good" if n % 3 else "bad", task="qa") for n in range(30)]
    report = audit(items)
    assert report.controls["generator only"] == 1.0 and "strong control: generator only" in names(report)
    # One source per generator: nothing is known from elsewhere, so nothing is told.
    alone = [replace(item, model=item.id) for item in items]
    assert audit(alone).controls["generator only"] == 0.5


def test_generators_that_are_equally_bad_tell_nothing():
    values = []
    for seed in range(10):
        rng = random.Random(seed)
        items = [example(n, model=f"m{n % 3}", hallucinated=rng.random() < 0.4) for n in range(90)]
        values.append(audit(items).controls["generator only"])
    assert abs(np.mean(values) - 0.5) < 0.06


def test_one_class_has_no_controls():
    report = audit([replace(item, hallucinated=True) for item in CLEAN])
    assert "one class" in names(report) and set(report.controls.values()) == {None}


def test_unlabelled_examples_are_counted_apart():
    report = audit([*CLEAN, example(70, hallucinated=None)])
    assert report.rates["all"]["all"].examples == 13 and report.rates["all"]["all"].labelled == 12
    assert report.label_kinds == {"response": 12, "none": 1} and names(report) == {"not labelled"}


def test_similarity_estimates_the_jaccard_index():
    rng = np.random.default_rng(0)
    errors = []
    for keep in (0.95, 0.9, 0.8, 0.5):
        words = rng.choice(WORDS, 600).tolist()
        other = words[: int(keep * 600)] + rng.choice(WORDS, 600 - int(keep * 600)).tolist()
        first, second = contexts_of(
            [("", example(1, passages=(" ".join(w),), id=str(i))) for i, w in enumerate((words, other))]
        )
        sets = [{tuple(w[i : i + 5]) for i in range(596)} for w in (words, other)]
        exact = len(sets[0] & sets[1]) / len(sets[0] | sets[1])
        errors.append(abs(similarity(first.sketch, second.sketch) - exact))
        assert similarity(first.sketch, first.sketch) == 1
    assert max(errors) < 0.2 and np.mean(errors) < 0.1


def test_phrases_of_a_template_do_not_make_contexts_alike():
    boiler = text(1000, 60)
    contexts = contexts_of([("", example(n, passages=(f"{boiler} {text(n, 40)}",))) for n in range(60)])
    assert list(near_pairs(contexts)) == []
