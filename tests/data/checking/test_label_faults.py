import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundscope.data.checking.label_faults import FAULTS, _cuts, kind_name, label_faults, label_of
from groundscope.example import Example, Label
from groundscope.text.words import clusters, word_spans

RESPONSE = "Built in 1887, cafe\u0301 👩\u200d🚀 here."


def faults(labels=None, response=RESPONSE, **more):
    labels = None if labels is None else tuple(Label(*label) for label in labels)
    return set(label_faults(Example("q", ("c",), response, labels=labels, **more)))


def test_good_labels_have_no_faults():
    assert faults([(9, 13)], hallucinated=True, label_kind="span") == set()
    assert faults([(0, len(RESPONSE))]) == set() and faults([]) == set()
    assert faults(hallucinated=True) == set()


@pytest.mark.parametrize(
    ("labels", "more", "fault"),
    [
        ([(10, 13)], {}, "label cuts a word"),
        ([(9, 12)], {}, "label cuts a word"),
        ([(15, 19)], {}, "label cuts a character"),
        ([(21, 22)], {}, "label cuts a character"),
        ([(5, 6)], {}, "label holds nothing"),
        ([(0, 8), (6, 13)], {}, "labels overlap"),
        ([(9, 13)], {"hallucinated": False}, "flag contradicts labels"),
        ([], {"hallucinated": True}, "flag contradicts labels"),
        ([(9, 13)], {"label_kind": "token"}, "unknown label kind"),
        ([(9, 13)], {"label_kind": "response"}, "response label has spans"),
        (None, {}, "not labelled"),
        ([(9, 13)], {"extra": {"unmatched_spans": ["x"]}}, "span was not found"),
    ],
)
def test_each_fault_is_found_alone(labels, more, fault):
    assert faults(labels, **more) == {fault} <= FAULTS.keys()


def test_labels_and_kinds():
    assert label_of(Example("", (), "r")) is None and kind_name(Example("", (), "r")) == "none"
    assert label_of(Example("", (), "r", labels=())) is False and kind_name(Example("", (), "r", labels=())) == "span"
    both = Example("", (), "r", labels=(Label(0, 1),), label_kind="sentence")
    assert label_of(both) is True and kind_name(both) == "sentence"
    assert kind_name(Example("", (), "r", hallucinated=True, label_kind="span")) == "response"


@given(st.text(max_size=25), st.data())
def test_any_labels_can_be_looked_at(text, data):
    starts = data.draw(st.lists(st.integers(0, max(0, len(text) - 1)), max_size=4 if text else 0))
    labels = [(start, data.draw(st.integers(start + 1, len(text)))) for start in starts]
    assert faults(labels, text) <= FAULTS.keys()


@given(st.text(alphabet="ab1.'\u0301\u200d👩🚀🇩 \n東", max_size=16), st.data())
def test_looking_between_white_space_is_looking_at_the_whole(text, data):
    edge = data.draw(st.integers(0, len(text)))
    for units in (clusters, word_spans):
        whole = any(start < edge < end for start, end in units(text))
        assert _cuts(text, edge, units) == whole
