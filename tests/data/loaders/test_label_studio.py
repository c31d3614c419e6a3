"""Label Studio exports: records of the true shape, made up here."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundscope.data.loaders.label_studio import code_points
from groundscope.data.loaders.registry import detect, read_examples
from groundscope.errors import InputError
from groundscope.example import Label

TEXT = "🎉👩‍🚀 Built in 1887.\nIt is tall."


def region(start, end, text, label="Wrong", **more):
    value = {"start": start, "end": end, "labels": [label]} | ({} if text is None else {"text": text})
    return {"id": "r1", "from_name": "label", "to_name": "response", "type": "labels", "value": value} | more


def task(*annotations, **data):
    fields = {"question": "When?", "context": ["Built in 1889."], "response": TEXT, "model": "some-7b"} | data
    done = [{"id": 1, "completed_by": 1, "was_cancelled": False, "result": list(item)} for item in annotations]
    return {"id": 12, "data": fields, "annotations": done}


def read(tmp_path, *tasks):
    path = tmp_path / "export.json"
    path.write_text(json.dumps(tasks), encoding="utf-8")
    assert detect([path]).name == "label-studio"
    return list(read_examples([path]))


START = TEXT.index("1887")
SHIFT = len(TEXT[:START].encode("utf-16-le")) // 2 - START


@pytest.mark.parametrize("shift", [0, SHIFT])
def test_code_points_and_utf16_units_give_the_same_label(tmp_path, shift):
    assert SHIFT == 3
    (example,) = read(tmp_path, task([region(START + shift, START + 4 + shift, "1887")]))
    assert example.labels == (Label(START, START + 4, "Wrong"),) and example.hallucinated
    assert (example.id, example.question, example.passages, example.model) == (
        "12",
        "When?",
        ("Built in 1889.",),
        "some-7b",
    )


def test_line_breaks_are_written_as_two_characters(tmp_path):
    start = TEXT.index("1887")
    (example,) = read(tmp_path, task([region(start, start + 8, "1887.\\nIt")]))
    assert TEXT[example.labels[0].start : example.labels[0].end] == "1887.\nIt"


def test_an_emoji_itself_can_be_marked(tmp_path):
    (example,) = read(tmp_path, task([region(1, 4, "👩‍🚀")]))
    assert example.labels[0] == Label(1, 4, "Wrong")


def test_offsets_of_hypertext_are_the_global_ones(tmp_path):
    value = {"start": "/p[1]/text()[1]", "end": "/p[1]/text()[1]", "startOffset": 0, "endOffset": 4, "text": "1887"}
    value |= {"hypertextlabels": ["Wrong"], "globalOffsets": {"start": START, "end": START + 4}}
    (example,) = read(tmp_path, task([{"type": "hypertextlabels", "to_name": "response", "value": value}]))
    assert example.labels == (Label(START, START + 4, "Wrong"),)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (region(START + 1, START + 5, "1887"), "do not enclose its text"),
        (region(START, START + 4, None), "could be code points or UTF-16 units"),
        (region("x", 4, "1887"), "whole numbers"),
        (region(0, 999, "1887"), "do not enclose"),
    ],
)
def test_a_region_without_a_sure_place_costs_its_task(tmp_path, bad, error):
    first, second = read(tmp_path, task([bad]), task([]) | {"id": 13})
    assert error in first.error and second.id == "13"


def test_without_text_before_any_emoji_there_is_one_reading(tmp_path):
    plain = task([region(9, 13, None)], response="Built in 1887.")
    assert read(tmp_path, plain)[0].labels == (Label(9, 13, "Wrong"),)


def test_regions_of_the_context_do_not_count(tmp_path):
    other = region(0, 5, "Built", to_name="context")
    (example,) = read(
        tmp_path, task([other, region(START, START + 4, "1887"), {"type": "choices", "value": {"choices": ["x"]}}])
    )
    assert len(example.labels) == 1


def test_nothing_marked_is_faithful_and_nobody_asked_is_unlabelled(tmp_path):
    cancelled = task([region(START, START + 4, "1887")]) | {"id": 14}
    cancelled["annotations"][0]["was_cancelled"] = True
    faithful, unasked, skipped = read(tmp_path, task([]), task() | {"id": 13}, cancelled)
    assert (faithful.labels, faithful.hallucinated, faithful.label_kind) == ((), False, "span")
    assert unasked.labels is None and unasked.hallucinated is None and skipped.labels is None


def test_several_people_decide_by_majority(tmp_path):
    built, year = region(4 + 1, 10, "Built"), region(START, START + 4, "1887", "Number")
    (example,) = read(tmp_path, task([built, year], [year], [region(START, START + 5, "1887.", "Number")]))
    assert example.labels == (Label(START, START + 4, "Number"),) and example.extra["annotators"] == 3


def test_two_people_must_agree(tmp_path):
    (example,) = read(tmp_path, task([region(START, START + 4, "1887")], []))
    assert example.labels == () and example.hallucinated is False


def test_other_export_types_are_refused(tmp_path):
    path = tmp_path / "min.json"
    path.write_text(json.dumps([{"id": 1, "response": "r", "label": []}]))
    (bad,) = read_examples([path], "label-studio")
    assert "choose the export type JSON" in bad.error
    (bad,) = read(tmp_path, {"id": 1, "data": {"image": "x"}, "annotations": []})
    assert "must hold the text" in bad.error


@given(st.text(min_size=1, max_size=30), st.data())
def test_either_unit_comes_back_to_the_text(text, data):
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    units = [len(text[:at].encode("utf-16-le", "surrogatepass")) // 2 for at in (start, end)]
    marked = text[start:end]
    for given_start, given_end in ((start, end), units):
        try:
            a, b = code_points(text, given_start, given_end, marked)
        except InputError as exc:
            assert "could be" in str(exc)  # both readings give the text: never a guess
        else:
            assert text[a:b] == marked
