"""What answers lose, on a tiny model: equal to passes made by hand, against controls of the same size."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from towers import make_examples

from groundscope.analyse.choice import choose_heads, choose_layers, halves
from groundscope.analyse.edits import amplified_feed_forward, random_attention
from groundscope.analyse.intervention import (
    InterventionOptions,
    intervene_on_heads,
    intervene_on_layers,
    matched_heads,
)
from groundscope.analyse.run import Plan, analyse
from groundscope.detectors.learned.hidden_state import HiddenState
from groundscope.detectors.learned.redeep import ReDeEPToken
from groundscope.errors import GroundscopeError, InputError
from groundscope.example import Example
from groundscope.trace.traced import TracedExample
from groundscope.train.data import ReadingOptions

EXAMPLES = make_examples(6)
OPTIONS = InterventionOptions(draws=2, resamples=50)


def losses(lm, change):
    """Mean negative log-likelihood of every answer by the model's own logits."""
    found = []
    for example in EXAMPLES:
        layout = lm.renderer().layout(example)
        ids = torch.from_numpy(np.concatenate([layout.prompt_ids, layout.response_ids]))[None]
        with torch.no_grad(), lm.tap.open(), change(layout.prompt_length - 1):
            logs = torch.log_softmax(lm.model(input_ids=ids).logits[0], -1)
        rows = torch.arange(layout.prompt_length - 1, ids.shape[1] - 1)
        found.append(-float(logs[rows, ids[0, rows + 1]].mean()))
    return np.array(found)


def test_changes_are_those_of_passes_made_by_hand(tiny):
    heads = [(0, 1), (2, 3)]
    found = intervene_on_heads(tiny, EXAMPLES, heads, OPTIONS)
    plain = losses(tiny, lambda first: random_attention(tiny, []))
    noisy = losses(tiny, lambda first: random_attention(tiny, heads, first_row=first))
    control = [losses(tiny, lambda first, c=c: random_attention(tiny, c, first_row=first)) for c in found.controls]
    whole = found.groups[0]
    assert whole.unchanged.value == pytest.approx(plain.mean(), rel=1e-4)
    assert whole.chosen.value == pytest.approx((noisy - plain).mean(), rel=1e-3, abs=1e-5)
    want = [float((c - plain).mean()) for c in control]
    assert whole.control_draws == pytest.approx(want, rel=1e-3, abs=1e-5)
    assert whole.control.value == pytest.approx(np.mean(want), rel=1e-3, abs=1e-5)
    assert whole.difference.estimate.value == pytest.approx(whole.chosen.value - whole.control.value)
    assert whole.chosen.low <= whole.chosen.value <= whole.chosen.high


def test_louder_layers_are_measured_the_same_way(tiny):
    found = intervene_on_layers(tiny, EXAMPLES, [1], 4.0, OPTIONS)
    plain = losses(tiny, lambda first: amplified_feed_forward(tiny, []))
    loud = losses(tiny, lambda first: amplified_feed_forward(tiny, [1], 4.0, first_row=first))
    assert found.groups[0].chosen.value == pytest.approx((loud - plain).mean(), rel=1e-3, abs=1e-5)
    assert found.change == "feed-forward x 4" and found.chosen == ((1,),)
    assert all((1,) not in places and len(places) == 1 for places in found.controls)


def test_factor_one_changes_nothing_at_all(tiny):
    found = intervene_on_layers(tiny, EXAMPLES, [0], 1.0, OPTIONS)
    for group in found.groups:
        assert group.chosen.value == group.control.value == group.chosen.high == 0


def test_groups_are_the_classes_and_their_difference(tiny):
    found = intervene_on_heads(tiny, EXAMPLES, [(1, 0)], OPTIONS)
    groups = {group.group: group for group in found.groups}
    assert list(groups) == ["all", "faithful", "hallucinated"]
    assert groups["faithful"].responses + groups["hallucinated"].responses == groups["all"].responses == 12
    gap = found.faithful_minus_hallucinated.estimate.value
    one, other = (groups[name].difference.estimate.value for name in ("faithful", "hallucinated"))
    assert gap == pytest.approx(one - other)
    json.dumps(found.to_dict(), allow_nan=False)
    bare = [Example(e.question, e.passages, e.response, id=e.id) for e in EXAMPLES]
    alone = intervene_on_heads(tiny, bare, [(1, 0)], OPTIONS)
    assert [group.group for group in alone.groups] == ["all"] and alone.faithful_minus_hallucinated is None


def test_controls_are_other_heads_and_the_same_every_time(tiny):
    chosen = [(0, 1), (0, 2), (2, 0)]
    for match in ("any", "layer"):
        draws = matched_heads(tiny, chosen, 4, match, seed=3)
        assert draws == matched_heads(tiny, chosen, 4, match, seed=3) != matched_heads(tiny, chosen, 4, match, seed=4)
        for places in draws:
            assert len(set(places)) == 3 and not set(places) & set(chosen)
            if match == "layer":
                assert sorted(layer for layer, _ in places) == [0, 0, 2]
    with pytest.raises(InputError, match="as many other heads"):
        matched_heads(tiny, [(layer, head) for layer in range(3) for head in range(3)], 1)
    with pytest.raises(InputError, match="heads in layer 0"):
        matched_heads(tiny, [(0, 0), (0, 1), (0, 2)], 1, "layer")


def test_one_answer_that_cannot_be_read_loses_no_other(make_tiny):
    lm = make_tiny(context=300)
    long = Example("When?", ("The river rises. " * 200,), "In 1889.", hallucinated=True, id="long")
    empty = Example("When?", ("The river rises.",), "", hallucinated=True, id="empty")
    found = intervene_on_heads(lm, [*EXAMPLES[:4], long, empty], [(1, 0)], OPTIONS)
    assert found.groups[0].responses == 4 and sum(found.unread.values()) == 2
    with pytest.raises(InputError, match="No answer could be read"):
        intervene_on_heads(lm, [long], [(1, 0)], OPTIONS)
    with pytest.raises(InputError, match="at least one of the heads"):
        intervene_on_heads(lm, EXAMPLES, [], OPTIONS)
    with pytest.raises(InputError, match="at least one of the layers"):
        intervene_on_layers(lm, EXAMPLES, [], options=OPTIONS)


@pytest.fixture(scope="module")
def traced(tiny):
    layouts = [tiny.renderer().layout(example) for example in EXAMPLES]
    traces = tiny.trace(layouts, ["external_context_score", "parametric_knowledge_score"])
    return [TracedExample(example, trace) for example, trace in zip(EXAMPLES, traces, strict=True)]


def test_places_are_named_or_chosen_on_other_sources(tiny, traced):
    named = choose_heads("2.1, 0.3", EXAMPLES, [], {}, 0)
    assert named.places == ((2, 1), (0, 3)) and named.examples == tuple(EXAMPLES)
    copying = choose_heads("copying:2", EXAMPLES, [], {(0, 0): 1.0, (1, 1): 3.0, (2, 2): 2.0}, 0)
    assert copying.places == ((1, 1), (2, 2)) and copying.examples == tuple(EXAMPLES)
    for chosen in (
        choose_heads("difference:3", EXAMPLES, traced, {}, 0),
        choose_layers("correlation:2", EXAMPLES, traced, 0),
    ):
        assert len(chosen.places) in (2, 3) and 0 < len(chosen.examples) < len(EXAMPLES)
        used = {item.group for item in halves(traced, 0)[0]}
        assert not used & {example.group for example in chosen.examples}
    for wrong in ("2", "a.b", "copying:0", "copying:-1", "copying:", "correlation:2", "²·1", ""):
        with pytest.raises(InputError):
            choose_heads(wrong, EXAMPLES, traced, {}, 0)
    for wrong in ("2.1", "difference:2", "-1"):
        with pytest.raises(InputError):
            choose_layers(wrong, EXAMPLES, traced, 0)
    with pytest.raises(InputError, match="N at least 1"):  # before anything is read or computed
        analyse("no-such-file", Plan(heads="copying:0"))
    with pytest.raises(InputError, match=r"correlation:N.*'difference:2'"):
        analyse("no-such-file", Plan(layers="difference:2"))
    with pytest.raises(InputError, match="at least two"):
        halves(traced[:2])


@pytest.fixture(scope="module")
def tiny_folder(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny.model.save_pretrained(folder)
    tiny.tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"heads": "copying:9999"}, r"has 12 heads.*Got 'copying:9999'; choose at most 6"),
        ({"heads": "difference:7"}, "choose at most 6"),
        ({"layers": "correlation:2"}, r"has 3 layers.*choose at most 1"),
        ({"heads": "2.1,3.0"}, "Got layer 3, head 0"),
        ({"heads": "2.4"}, "Got layer 2, head 4"),
        ({"layers": "3"}, "3"),
        ({"layers": "0,1"}, "as many other layers"),
        ({"axes": ("dropped",), "detector": ReDeEPToken()}, "must learn before it scores"),
        ({"axes": ("dropped",), "detector": HiddenState(layer=9)}, "must learn before it scores"),
    ],
)
def test_what_the_model_does_not_have_is_refused_before_it_reads(tmp_path, tiny_folder, monkeypatch, asked, message):
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(example.to_dict()) + "\n" for example in EXAMPLES))
    for place in ("groundscope.analyse.run.Reader.read", "groundscope.learn.copying.copying_scores"):
        monkeypatch.setattr(place, lambda *_, **__: pytest.fail("the model reads"))
    with pytest.raises(GroundscopeError, match=message):
        analyse(data, Plan(**asked), ReadingOptions(model=str(tiny_folder)))


def test_halves_of_one_source_are_refused_before_the_model_reads(tmp_path, tiny_folder, monkeypatch):
    data = tmp_path / "data.jsonl"
    lone = [replace(example, source_id="one", passages=EXAMPLES[0].passages) for example in EXAMPLES]
    data.write_text("".join(json.dumps(example.to_dict()) + "\n" for example in lone))
    monkeypatch.setattr("groundscope.analyse.run.Reader.read", lambda *_, **__: pytest.fail("the model reads"))
    with pytest.raises(InputError, match="at least two"):
        analyse(data, Plan(heads="difference:2"), ReadingOptions(model=str(tiny_folder)))
