"""What the probes on units of tokens learn from, and how they score: against scikit-learn and plain loops."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logit
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from synthetic import features_of, layout_of, marks_of, some_data, traced

import groundscope as gs
from groundscope.detectors.learned.aggtruth import AggTruth
from groundscope.detectors.learned.hidden_state import HiddenState
from groundscope.detectors.learned.lookback_lens import LookbackLens
from groundscope.errors import InputError, UnknownNameError
from groundscope.trace.traced import TracedExample


def windows(tokens: int, size: int = 8, stride: int = 1) -> list[range]:
    if tokens <= size:
        return [range(tokens)]
    starts = list(range(0, tokens - size + 1, stride))
    return [range(start, start + size) for start in sorted({*starts, tokens - size})]


def naive_fit(items, model, partial=True, size=8, stride=1, signal="lookback_ratio"):
    X, y = [], []
    for item, values in zip(items, features_of(items, signal), strict=True):
        if len(values) < size and not partial:
            continue
        for window in windows(len(values), size, stride):
            X.append(values[list(window)].mean(axis=0))
            y.append(marks_of(item)[list(window)].any())
    return model.fit(np.array(X), np.array(y)), len(y), sum(y)


def naive_scores(model, values, size=8, stride=1):
    held = windows(len(values), size, stride)
    probability = [model.predict_proba(values[list(w)].mean(axis=0, keepdims=True))[0, 1] for w in held]
    return [np.mean([p for p, w in zip(probability, held, strict=True) if t in w]) for t in range(len(values))]


@pytest.mark.parametrize(
    ("detector", "model", "partial", "size", "stride"),
    [
        (LookbackLens(), make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, C=0.01)), True, 8, 1),
        (LookbackLens(variant="official"), LogisticRegression(max_iter=1000), False, 8, 1),
        (
            LookbackLens(variant="official", window_size=5, stride=3, C=0.2, class_weight="balanced"),
            LogisticRegression(max_iter=1000, C=0.2, class_weight="balanced"), False, 5, 3,
        ),
        (
            LookbackLens(window_size=1, C=1.0),
            make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)), True, 1, 1,
        ),
    ],
)  # fmt: skip
def test_windows_are_learnt_and_scored_as_by_hand(detector, model, partial, size, stride):
    items = some_data()
    detector.fit(items)
    model, units, hallucinated = naive_fit(items, model, partial, size, stride)
    assert detector.units_ == (units, hallucinated)
    for item, values in zip(items[:8], features_of(items[:8]), strict=True):
        scores = detector.token_scores(item.trace)
        np.testing.assert_allclose(scores, naive_scores(model, values, size, stride), rtol=1e-5, atol=1e-7)
        assert detector.response_score(scores) == pytest.approx(scores.mean())


def test_aggtruth_and_the_hidden_state_probe_share_the_regression():
    for detector, signal in (
        (AggTruth("js", selector=None), "aggtruth_js"),
        (HiddenState(layer=2), "hidden_state_2"),
    ):
        items = some_data(signal, shape=(2, 3) if isinstance(detector, AggTruth) else (6,))
        model = make_pipeline(
            MinMaxScaler(), LogisticRegression(C=0.01, class_weight="balanced", max_iter=10000, tol=1e-6)
        )
        values = features_of(items, signal)
        if isinstance(detector, AggTruth):
            values = [
                np.column_stack([one, item.trace["passage_percentage"].astype(np.float64)])
                for one, item in zip(values, items, strict=True)
            ]
        X = np.array([v[list(w)].mean(axis=0) for v in values for w in windows(len(v))])
        y = [marks_of(item)[list(w)].any() for item in items for w in windows(item.trace.tokens)]
        model.fit(X, y)
        detector.fit(items)
        for item, one in zip(items[:5], values[:5], strict=True):
            np.testing.assert_allclose(detector.token_scores(item.trace), naive_scores(model, one), rtol=2e-3)


@pytest.mark.parametrize("make", [LookbackLens, AggTruth, lambda **p: HiddenState(layer=0, **p)])
@pytest.mark.parametrize("units", ["window", "span", "response"])
def test_they_find_what_is_there(make, units):
    detector = make(units=units)
    shape = (6,) if isinstance(detector, HiddenState) else (2, 3)
    train, test = (some_data(detector.signal, 60, seed, shape=shape, lengths=(10, 30)) for seed in (0, 1))
    assert detector.fit(train).score(test) > 0.7
    gaps = []
    for item in test:
        marked = marks_of(item)
        if marked.any() and not marked.all():
            scores = detector.token_scores(item.trace)
            assert scores.min() >= 0 and scores.max() <= 1
            gaps.append(scores[marked].mean() - scores[~marked].mean())
    # The gap may be small where the penalty is strong, but it points the right way nearly everywhere.
    assert len(gaps) > 20 and np.mean(np.array(gaps) > 0) > 0.9


def test_a_response_probe_scores_the_mean_features():
    items = some_data(lengths=(10, 30))
    detector = LookbackLens(units="response").fit(items)
    assert detector.units_ == (40, 20)
    for item, values in zip(items, features_of(items), strict=True):
        scores = detector.token_scores(item.trace)
        np.testing.assert_allclose(scores, detector.probe_.probability(values), rtol=1e-9)
        want = float(detector.probe_.probability(values.mean(axis=0)))
        assert detector.response_score(scores) == pytest.approx(want, rel=1e-9)
    # Tokens without a score are left out of the mean.
    hole = scores.copy()
    hole[0] = np.nan
    want = float(detector.probe_.probability(values[1:].mean(axis=0)))
    assert detector.response_score(hole) == pytest.approx(want, rel=1e-9)
    assert logit(detector.response_score(scores)) == pytest.approx(logit(scores).mean())
    assert np.isfinite(detector.response_score(np.array([0.0, 1.0])))


def test_response_probes_learn_from_responses_labelled_as_a_whole():
    items = some_data(lengths=(10, 30))
    whole = [
        TracedExample(replace(item.example, labels=None, hallucinated=bool(item.example.labels)), item.trace)
        for item in items
    ]
    one, other = (LookbackLens(units="response").fit(data) for data in (items, whole))
    np.testing.assert_array_equal(one.probe_.coef_, other.probe_.coef_)
    for units in ("window", "span"):
        with pytest.raises(InputError, match=r"'lookback-lens|lookback-lens learns from labels of the kind 'span'"):
            LookbackLens(units=units).fit(whole)
    # What is clean as a whole is clean everywhere.
    mixed = [one if one.example.labels else other for one, other in zip(items, whole, strict=True)]
    np.testing.assert_array_equal(LookbackLens().fit(mixed).probe_.coef_, LookbackLens().fit(items).probe_.coef_)


@pytest.mark.parametrize(("variant", "units", "hallucinated"), [("paper", 7, 3), ("official", 6, 2)])
def test_predefined_spans(variant, units, hallucinated):
    rng = np.random.default_rng(0)
    values = {"lookback_ratio": rng.random((12, 2, 3))}
    items = [
        traced(values, number=0),
        traced(values, (2, 4), (7, 9), number=1),  # paper: 5 units, official: 3
        traced(values, (0, 12), number=2),
    ]
    if variant == "official":
        items.append(traced(values, number=3))
    detector = LookbackLens(units="span", variant=variant).fit(items)
    assert detector.units_ == (units, hallucinated)
    # New text has no spans: it is scored by windows.
    assert len(np.unique(detector.token_scores(items[0].trace))) > 3


def test_short_responses_are_scored_as_one_window_but_not_learnt_from_officially():
    items = some_data()
    short = traced({"lookback_ratio": np.random.default_rng(1).random((3, 2, 3))}, (0, 1), number=99)
    official = LookbackLens(variant="official").fit(items)
    np.testing.assert_array_equal(
        official.probe_.coef_, LookbackLens(variant="official").fit([*items, short]).probe_.coef_
    )
    assert LookbackLens().fit([*items, short]).units_[0] == LookbackLens().fit(items).units_[0] + 1
    assert np.ptp(official.token_scores(short.trace)) == 0
    all_short = some_data(lengths=(2, 8))
    with pytest.raises(InputError, match=r"needs windows of both classes.*0 faithful and 0 hallucinated"):
        LookbackLens(variant="official").fit(all_short)
    LookbackLens().fit(all_short)


def test_a_label_on_the_last_token_or_on_one_character_counts():
    values = {"lookback_ratio": np.random.default_rng(0).random((12, 2, 3))}
    clean = traced(values, number=0)
    for span in ((11, 12), (0, 1)):
        assert LookbackLens().fit([clean, traced(values, span, number=1)]).units_ == (10, 1)
        assert LookbackLens(window_size=1).fit([clean, traced(values, span, number=1)]).units_ == (24, 1)


def test_responses_said_to_be_hallucinated_nobody_knows_where_are_left_out(caplog):
    items = some_data()
    odd = traced({"lookback_ratio": np.random.default_rng(0).random((12, 2, 3))}, number=77, hallucinated=True)
    with caplog.at_level(logging.WARNING):
        detector = LookbackLens().fit([*items, odd])
    assert "lookback-lens: 1 hallucinated responses without a marked token were left out" in caplog.text
    assert detector.units_ == LookbackLens().fit(items).units_
    assert LookbackLens(units="response").fit([*items, odd]).units_ == (41, 21)


def test_the_signal_follows_the_parameters():
    assert LookbackLens().signals == ("lookback_ratio",)
    assert LookbackLens(context="passages").signals == ("lookback_ratio_passages",)
    assert AggTruth("cosine").signals == ("aggtruth_cosine", "passage_percentage")
    assert HiddenState(3).signals == ("hidden_state_3",)


def test_spans_are_smoothed_less_the_more_windows_have_smoothed():
    assert [LookbackLens(window_size=size).window for size in (1, 2, 4, 8, 64)] == [16, 5, 2, 1, 1]
    assert LookbackLens(units="response").window == 16
    assert LookbackLens().aggregation == "mean over tokens"
    assert LookbackLens(pooling="max").aggregation == "max over tokens"
    assert "mean features" in LookbackLens(units="response").aggregation
    assert LookbackLens().label_kinds == ("span", "sentence") and "response" in AggTruth(units="response").label_kinds


def test_the_maximum_may_be_the_response_score():
    detector = LookbackLens(pooling="max").fit(some_data())
    assert detector.response_score(np.array([0.1, np.nan, 0.7, 0.2])) == 0.7


@pytest.mark.parametrize("make", [LookbackLens, AggTruth, lambda: HiddenState(layer=0)])
def test_a_model_of_another_shape_is_refused(make):
    detector = make()
    hidden = isinstance(detector, HiddenState)
    items = some_data(detector.signal, shape=(6,) if hidden else (2, 3))
    detector.fit(items)
    # As many features in another order are no better.
    other = some_data(detector.signal, 2, shape=(7,) if hidden else (3, 2))
    wanted = "6 channels and this trace has 7 channels" if hidden else "2 layers of 3 heads and this trace has 3 layers"
    with pytest.raises(InputError, match=f"{detector.name}' learnt from {wanted}"):
        detector.token_scores(other[0].trace)
    with pytest.raises(InputError, match="All traces must have the same features"):
        make().fit([*items, *(replace_id(item) for item in other)])


def replace_id(item: TracedExample) -> TracedExample:
    return TracedExample(replace(item.example, id="other", source_id="other"), item.trace)


def test_what_does_not_fit_is_not_restored():
    detector = AggTruth().fit(some_data("aggtruth_sum"))
    arrays, facts = detector.state()
    assert len(arrays["coef"]) == 7 and facts["shape"] == [2, 3]
    with pytest.raises(InputError, match="7 weights, which do not fit 3 layers of 3 heads"):
        AggTruth().restore(arrays, {**facts, "shape": [3, 3]})
    with pytest.raises(InputError, match="7 weights, which do not fit 2 layers of 3 heads"):
        LookbackLens().restore(arrays, facts)


def test_the_passage_percentage_is_chosen_like_a_head():
    rng = np.random.default_rng(0)
    items = []
    for number in range(40):
        values = {"aggtruth_sum": rng.random((12, 2, 3)), "passage_percentage": np.full(12, 0.5 - 0.2 * (number % 2))}
        items.append(traced(values, *([(0, 12)] if number % 2 else []), number=number))
    detector = AggTruth(selector_params={"fraction": 0.1}).fit(items)
    assert detector.probe_.selected_.tolist() == [False] * 6 + [True] and detector.probe_.coef_[6] < 0
    assert detector.token_scores(items[1].trace).min() > 0.5 > detector.token_scores(items[0].trace).max()


@pytest.mark.parametrize("selector", ["spearman", "point-biserial", "lasso", "center", "random", "random-plus"])
def test_selectors_find_the_head_that_matters(selector):
    detector = AggTruth(selector=selector, selector_params={"seed": 5} if "random" in selector else None)
    detector.fit(some_data("aggtruth_sum", 60, effect=-0.3))
    assert detector.probe_.selected_[0] and np.argmax(np.abs(detector.probe_.coef_)) == 0


@pytest.mark.parametrize(
    ("cls", "params"),
    [
        (LookbackLens, {"context": "all"}),
        (LookbackLens, {"units": "sentence"}),
        (LookbackLens, {"window_size": 0}),
        (LookbackLens, {"stride": 9}),
        (LookbackLens, {"stride": 0}),
        (LookbackLens, {"variant": "code"}),
        (LookbackLens, {"C": -1}),
        (LookbackLens, {"class_weight": "even"}),
        (LookbackLens, {"max_iter": 0.5}),
        (LookbackLens, {"pooling": "median"}),
        (AggTruth, {"aggregate": "mean"}),
        (AggTruth, {"selector_params": 3}),
        (AggTruth, {"selector_params": {"fraction": 1.0}, "selector": None}),
        (HiddenState, {"layer": -1}),
        (HiddenState, {"layer": 1.0}),
        (HiddenState, {"layer": True}),
        (HiddenState, {"units": "token"}),
    ],
)
def test_parameters_out_of_range_are_refused(cls, params):
    with pytest.raises(InputError, match=rf"The '{next(iter(params))}' parameter of {cls.__name__} .* Got|needs a"):
        cls(**params)


def test_selectors_are_checked_before_anything_is_read():
    with pytest.raises(UnknownNameError, match="Unknown selector 'spearmann'"):
        AggTruth(selector="spearmann")
    with pytest.raises(InputError, match="'fraction' parameter of SpearmanSelector"):
        AggTruth(selector_params={"fraction": 2})
    with pytest.raises(InputError, match="cannot be made with"):
        AggTruth(selector="lasso", selector_params={"n": 2})


def test_a_trace_of_a_real_model_is_scored_end_to_end(tiny):
    from groundscope.example import Example, Label

    words = ["The", "tower", "was", "completed", "in", "Paris", "and", "stands", "by", "the", "river", "since", "1889"]
    examples = [
        Example(
            "When?", ("The tower was completed in 1889.",), " ".join(np.roll(words, number)),
            labels=(Label(4, 20),) if number % 2 else (), id=str(number), source_id=str(number),
        )
        for number in range(8)
    ]  # fmt: skip
    layouts = [tiny.renderer().layout(example) for example in examples]
    for detector in (LookbackLens(), AggTruth("entropy"), HiddenState(layer=2)):
        traces = tiny.trace(layouts, detector.signals)
        detector.fit([TracedExample(*pair) for pair in zip(examples, traces, strict=True)])
        assert detector.shape_ == ((32,) if isinstance(detector, HiddenState) else (3, 4))
        assert all(np.isfinite(detector.token_scores(trace)).all() for trace in traces)


def test_layouts_of_the_tests_are_what_they_say():
    layout = layout_of(3)
    assert layout.response == "a a a" and isinstance(layout, gs.Layout)
    assert marks_of(traced({"lookback_ratio": np.zeros((3, 2, 3))}, (1, 3))).tolist() == [False, True, True]


def test_windows_and_heads_say_what_the_probe_holds():
    data = some_data("lookback_ratio", 12)
    detector = LookbackLens().fit(data)
    trace = data[0].trace
    ranges = np.array([[0, 3], [2, 7]])
    want = [
        detector.probe_.probability(trace["lookback_ratio"][a:b].reshape(b - a, -1).mean(axis=0)) for a, b in ranges
    ]
    np.testing.assert_allclose(detector.window_scores(trace, ranges), want, rtol=1e-6)
    weights = detector.head_weights()
    assert weights.shape == trace["lookback_ratio"].shape[1:]
    assert weights[1, 2] == detector.probe_.coef_[weights.shape[1] + 2]
    sums = some_data("aggtruth_sum", 12)
    selected = AggTruth(selector="center", selector_params={"fraction": 0.5}).fit(sums)
    assert selected.head_weights().shape == weights.shape and (selected.head_weights() == 0).any()
    states = some_data("hidden_state_0", 12, shape=(6,))
    assert HiddenState(layer=0).fit(states).head_weights() is None
