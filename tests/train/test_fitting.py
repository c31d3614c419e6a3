import math
from dataclasses import replace

import pytest

import groundscope as gs
from groundscope.detectors.registry import from_name
from groundscope.errors import InputError
from groundscope.learn.labels import response_label
from groundscope.train.card import model_card
from groundscope.train.fitting import Size, cautions, train_detector


def _hidden(**params):
    return from_name("hidden-state", layer=1, **params)


def test_what_is_learnt_shows_on_sources_that_were_not_seen(traced):
    result = train_detector(_hidden(), traced[:24], traced[24:32], traced[32:])
    assert result.measured_on == "test" and result.test == Size(8, 4, 4)
    own = next(row for row in result.figures if row.name == "hidden-state" and row.level == "response")
    assert own.auroc.value == 1.0 and own.units == 8 and own.positives == 4
    assert own.recall == 1.0 and 0.5 < own.precision <= 1.0 and 0.7 < own.f1 <= 1.0
    assert {row.name for row in result.figures} >= {"response length", "word novelty", "task only"}


def test_without_dev_a_part_is_held_back_by_source(traced):
    result = train_detector(_hidden(), traced)
    assert result.measured_on == "dev" and result.test is None
    assert result.train.examples + result.dev.examples == len(traced)
    assert result.train.sources + result.dev.sources == 20
    assert 0 < result.dev.hallucinated < result.dev.examples


def test_thresholds_are_chosen_on_dev_alone(traced):
    one = train_detector(_hidden(), traced[:24], traced[24:32], traced[32:])
    other = train_detector(_hidden(), traced[:24], traced[24:32], traced[36:])
    assert one.detector.threshold_ == other.detector.threshold_
    moved = train_detector(_hidden(), traced[:24], traced[32:], traced[24:32])
    assert moved.detector.threshold_ != one.detector.threshold_


@pytest.mark.parametrize("objective", ["precision:1.0", "fpr:0"])
def test_an_objective_holds_on_dev(traced, objective):
    result = train_detector(_hidden(), traced[:24], traced[24:], objective=objective)
    line = result.detector.threshold_
    for item in traced[24:]:
        if result.detector.response_score_of(item.trace) >= line.response:
            assert response_label(item.example)
    assert objective.split(":")[0] in line.source


def test_a_source_on_two_sides_is_refused(traced):
    for parts in ((traced[:25], traced[25:]), (traced[:24], traced[24:], traced[23:])):
        with pytest.raises(InputError, match="must not share"):
            train_detector(_hidden(), *parts)


def test_passages_on_two_sides_are_refused_whatever_their_source_is_called(traced):
    def renamed(item):
        return replace(item, example=replace(item.example, id=f"new {item.example.id}", source_id="another"))

    for parts in (
        (traced[:24], [*traced[24:], renamed(traced[0])]),
        (traced[:24], traced[24:32], [*traced[32:], renamed(traced[0])]),
        (traced[:24], traced[24:32], [*traced[32:], renamed(traced[24])]),
    ):
        with pytest.raises(InputError, match="must not share passages"):
            train_detector(_hidden(), *parts)


def test_an_empty_set_is_never_taken_for_none(traced):
    with pytest.raises(InputError, match="needs examples to learn from"):
        train_detector(_hidden(), traced[:24], [])
    with pytest.raises(InputError, match="no example to measure on"):
        train_detector(_hidden(), traced[:24], traced[24:], [])


@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyError("x"), ZeroDivisionError(), MemoryError("8 GiB")])
def test_a_detector_that_fails_in_fit_is_named(traced, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(type(_hidden()), "_fit", fail)
    with pytest.raises(InputError, match="'hidden-state' failed in fit: " + type(error).__name__):
        train_detector(_hidden(), traced[:24], traced[24:])


def test_a_detector_that_does_not_learn_is_refused(traced):
    with pytest.raises(InputError, match="does not learn"):
        train_detector(from_name("contrast"), traced)


def test_data_of_one_class_are_refused(traced):
    faithful = [item for item in traced if not response_label(item.example)]
    with pytest.raises(InputError, match="both classes"):
        train_detector(_hidden(), faithful)


def test_a_detector_knows_what_it_has_seen(traced):
    detector = train_detector(_hidden(), traced[:24], traced[24:32]).detector
    detector.check_unseen(traced[32:])
    for seen in (traced[:1], traced[31:33]):
        with pytest.raises(InputError, match="learnt from 1 of these"):
            detector.check_unseen(seen)


def test_the_card_says_what_was_done(traced):
    result = train_detector(_hidden(), traced[:24], traced[24:32], traced[32:])
    card = model_card(result, traced[:32], ["data.jsonl"])
    texts = (
        "# hidden-state for tiny",
        "24 examples (12 hallucinated) from 12 sources",
        "data.jsonl",
        "made 32",
        "control: word novelty",
        "| response | **hidden-state** | 8 | 4 | 1.000",
        "decided nothing",
    )
    for text in texts:
        assert text in card
    assert "flattering" in model_card(train_detector(_hidden(), traced), traced, ["d"])


def test_a_control_that_does_as_well_is_named(traced):
    result = train_detector(from_name("lookback-lens"), traced[:24], traced[24:])
    own = next(row.auroc.value for row in result.figures if row.name == "lookback-lens" and row.level == "response")
    better = [row.name for row in result.figures
              if row.level == "response" and row.auroc.value >= own and row.name != "lookback-lens"]  # fmt: skip
    assert "word novelty" in better  # the marked words stand in no passage
    (said,) = [text for text in cautions(result) if "response level" in text]
    assert all(f"'{name}'" in said for name in better) and said.count("'") == 2 * len(better)


def test_thresholds_chosen_on_next_to_nothing_are_said_to_be(traced):
    few, enough = (
        train_detector(_hidden(), traced[:24], traced[24:28]),
        train_detector(_hidden(), traced[:24], traced[24:]),
    )
    assert few.dev.sources < 5 <= enough.dev.sources
    assert "too few to rely on" in cautions(few)[0] and not any("too few" in text for text in cautions(enough))
    assert "too few to rely on" in model_card(few, traced[:28], ["data.jsonl"])


def test_a_trained_detector_scores_through_a_scope(tiny, traced, tmp_path):
    detector = train_detector(_hidden(), traced[:24], traced[24:]).detector
    detector.save_pretrained(tmp_path / "probe")
    scope = gs.Scope(tiny, str(tmp_path / "probe"))
    for item in traced[:6]:
        verdict = scope.score(example=item.example)
        assert math.isclose(verdict.score, detector.response_score_of(item.trace), abs_tol=1e-5)
        assert verdict.threshold == detector.threshold_
        assert verdict.flagged == (verdict.score >= detector.threshold_.response)
        assert verdict.spans if verdict.flagged else True
