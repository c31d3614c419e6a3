"""RAGTruth and ReDeEP's Dolly: records of the true shape, made up here."""

import json

import pytest

from groundscope.data.jsonl import BadRecord
from groundscope.data.loaders.ragtruth import read_ragtruth, read_redeep_dolly
from groundscope.data.loaders.registry import detect, read_examples
from groundscope.errors import InputError
from groundscope.example import Label

DATA = {"name": "Café Öl", "open": {"Monday": "9:0-17:0"}, "stars": 4.0, "wifi": None, "music": False}
SOURCES = [
    {
        "source_id": "10",
        "task_type": "QA",
        "source": "MARCO",
        "source_info": {
            "question": "when was it built",
            "passages": "passage 1:Built in 1889.\n\npassage 2:It is tall.\n\n",
        },
        "prompt": "Answer:\nwhen was it built\npassage 1:Built in 1889.\n\npassage 2:It is tall.\n\noutput:",
    },
    {
        "source_id": "11",
        "task_type": "Summary",
        "source": "CNN/DM",
        "source_info": "Rain fell. The river rose.",
        "prompt": "Summarize the following news within 9 words:\nRain fell. The river rose.\noutput:",
    },
    {
        "source_id": "12",
        "task_type": "Data2txt",
        "source": "Yelp",
        "source_info": DATA,
        "prompt": f"Write an overview. Structured data:\n{DATA}\nOverview:",
    },
]


def response(number, source, text, labels, **more):
    base = {"id": str(number), "source_id": source, "model": "some-7b", "temperature": 0.7, "labels": labels}
    return base | {"split": "train", "quality": "good", "response": text} | more


def mark(text, quote, kind="Evident Conflict", **more):
    start = text.index(quote)
    flags = {"implicit_true": False, "due_to_null": False}
    return {"start": start, "end": start + len(quote), "text": quote, "meta": "note", "label_type": kind} | flags | more


QA = "🎉 Built in 1887, and it is tall."
RESPONSES = [
    response(1, "10", QA, [mark(QA, "1887"), mark(QA, "tall", "Subtle Baseless Info", implicit_true=True)][::-1]),
    response(2, "11", "Rain fell.", [], split="test", quality="truncated"),
    response(3, "12", "It opens on Monday.", []),
]


def write(path, records):
    path.write_text("\n".join(map(json.dumps, records)) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def files(tmp_path):
    write(tmp_path / "source_info.jsonl", SOURCES)
    return tmp_path, write(tmp_path / "response.jsonl", RESPONSES)


def test_tasks_passages_and_offsets(files):
    qa, summary, data = read_examples([files[0]])
    assert (qa.id, qa.task, qa.source_id, qa.split) == ("ragtruth-1", "qa", "10", "train")
    assert qa.question == "when was it built" and qa.passages == ("Built in 1889.", "It is tall.")
    assert [qa.response[label.start : label.end] for label in qa.labels] == ["1887", "tall"]
    assert qa.labels[0].type == "Evident Conflict" and qa.hallucinated and qa.label_kind == "span"
    assert qa.extra["label_notes"] == [{"meta": "note"}, {"implicit_true": True, "meta": "note"}]
    assert summary.question == "Summarize the following news within 9 words:"
    assert summary.passages == ("Rain fell. The river rose.",) and summary.labels == ()
    assert summary.task == "summarization" and summary.hallucinated is False
    assert summary.extra == {"temperature": 0.7, "quality": "truncated", "origin": "CNN/DM"}
    assert data.task == "data2text" and data.passages == (str(DATA),)
    assert data.question == "Write an overview. Structured data:"


def test_the_sources_beside_a_response_file_are_found(files):
    assert detect([files[1]]).name == "ragtruth"
    assert len(list(read_examples([files[1]]))) == 3


def test_examples_of_a_source_are_one_group(files):
    write(files[1], [*RESPONSES, response(4, "10", "Other.", [])])
    examples = list(read_examples([files[0]]))
    assert examples[0].group == examples[3].group != examples[1].group


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"labels": [mark(QA, "1887") | {"start": 0, "end": 4}]}, "carries the text '1887'"),
        ({"labels": [{"start": 5, "end": 999}]}, "A label must satisfy"),
        ({"labels": [{"start": "5", "end": 9}]}, "whole numbers"),
        ({"labels": "perhaps"}, "must be yes or no"),
        ({"source_id": "99"}, "source '99' is not in the file"),
        ({"response": None}, "'response' must be a string"),
    ],
)
def test_a_bad_response_costs_only_itself(files, change, error):
    write(files[1], [RESPONSES[0] | change, *RESPONSES[1:]])
    bad, *good = read_examples([files[0]])
    assert isinstance(bad, BadRecord) and error in bad.error and bad.line == 1 and bad.id == "1"
    assert [example.id for example in good] == ["ragtruth-2", "ragtruth-3"]


def test_a_bad_source_costs_only_its_responses(files):
    sources = [SOURCES[0] | {"task_type": "Poem"}, SOURCES[1] | {"prompt": None}, SOURCES[2]]
    write(files[0] / "source_info.jsonl", sources)
    first, second, third = read_examples([files[0]])
    assert "'task_type' of a source must be one of" in first.error and "'prompt' must be a string" in second.error
    assert third.id == "ragtruth-3"


def test_a_repeated_id_is_reported_with_both_places(files):
    write(files[1], [*RESPONSES, RESPONSES[0]])
    assert list(read_examples([files[0]]))[3].error == (
        "The id 'ragtruth-1' is used already in record 1. Ids must be unique."
    )


def test_response_level_words_are_understood(files):
    write(files[1], [response(1, "10", "No.", "hallucinated"), response(2, "10", "Yes.", "0")])
    wrong, right = read_examples([files[0]])
    assert (wrong.hallucinated, wrong.labels, wrong.label_kind) == (True, None, "response")
    assert (right.hallucinated, right.labels) == (False, ())


def test_passages_without_numbers_stay_whole(files):
    odd = SOURCES[0] | {"source_info": {"question": "q", "passages": "passage 2:b\n\npassage 1:a"}}
    write(files[0] / "source_info.jsonl", [odd, *SOURCES[1:]])
    assert next(iter(read_examples([files[0]]))).passages == ("passage 2:b\n\npassage 1:a",)


def test_both_files_are_needed(files):
    (files[0] / "source_info.jsonl").unlink()
    with pytest.raises(InputError, match=r"sources \(source_info.jsonl\) are missing"):
        list(read_examples([files[1]]))
    with pytest.raises(InputError, match=r"responses \(response.jsonl\) are missing"):
        list(read_ragtruth([write(files[0] / "only.jsonl", SOURCES)]))
    with pytest.raises(InputError, match="neither a file of responses"):
        list(read_ragtruth([write(files[0] / "other.jsonl", [{"a": 1}])]))


def test_sources_that_contradict_are_refused(files):
    other = write(files[0] / "source_info_more.jsonl", [SOURCES[0] | {"prompt": "another"}])
    with pytest.raises(InputError, match="'10' stands twice with different content"):
        list(read_ragtruth([files[1], files[0] / "source_info.jsonl", other]))


def test_dolly_is_told_apart_and_labelled_as_a_whole(tmp_path):
    info = {"question": "Which is older?", "passages": "A is from 1900. B is from 1950."}
    source = {"source_id": 5, "task_type": "QA", "source_info": info, "prompt": "p", "human_response": "A"}
    write(tmp_path / "source_info_dolly.jsonl", [source])
    labels = [{"start": 0, "end": 3, "text": "elsewhere"}]
    path = write(tmp_path / "response_dolly.jsonl", [response(1, 5, "B is.", labels), response(2, 5, "A is.", [])])
    assert detect([path]).name == "redeep-dolly"
    wrong, right = read_examples([path])
    assert (
        wrong.dataset == "dolly_ac" and wrong.hallucinated and wrong.label_kind == "response" and wrong.labels is None
    )
    assert right.hallucinated is False and right.labels == () and right.source_id == "5"
    assert wrong.passages == ("A is from 1900. B is from 1950.",)
    assert list(read_redeep_dolly([path])) == [wrong, right]


def test_labels_are_sorted(files):
    assert next(iter(read_examples([files[0]]))).labels == (
        Label(11, 15, "Evident Conflict"),
        Label(27, 31, "Subtle Baseless Info"),
    )


def test_a_source_whose_id_is_a_list_costs_only_its_responses(files):
    folder, path = files
    write(folder / "source_info.jsonl", [SOURCES[0] | {"source_id": ["10"]}, *SOURCES[1:]])
    found = list(read_examples([str(path)]))
    bad = [item.error for item in found if isinstance(item, BadRecord)]
    assert "'source_id' must be a string or a whole number" in bad[0] and "'10' is not in the file" in bad[1]
    assert len(found) == 4
