"""The other formats, found out from their content: records of the true shape, made up here."""

import json

import pytest

from groundscope.data.jsonl import BadRecord
from groundscope.data.loaders.registry import FORMATS, detect, read_examples
from groundscope.errors import InputError, UnknownNameError
from groundscope.example import Example, Label

HALUEVAL = {
    "knowledge": "A is old.",
    "question": "Is A old?",
    "right_answer": "Yes",
    "hallucinated_answer": "A is new.",
}
LOOKBACK = {
    "index": 7,
    "document": "#Document#: One text.\nAnother in Rome.\n#Question#: Where is it?",
    "ground_truth": "['Rome']",
    "response": "In Paris. Yes, Paris!",
    "decision": False,
    "gpt4_explanation": "It says Rome.",
    "problematic_spans": ["Paris"],
    "cost": 0.01,
}
HALLURAG = {
    "model": "org/some-7b",
    "quantization": "int8",
    "prompt": {
        "answerable": True,
        "chunk_size": 350,
        "passage": {"useful_art_i": 4, "useful_passage_i": 0, "question": "How high?"},
        "rag_prompt": [
            {
                "role": "user",
                "content": "Use the context.\nQuestion: How high? \nContext: ### Chunk 1: Tower\nIt is 9 m high.\n\n"
                "### Chunk 2: Lake\nIt is deep.\n\n \nAnswer:",
            }
        ],
    },
    "sentence_data": [
        {"target": "non-hallucinated", "cum_sentence": "It is high."},
        {"target": "hallucinated", "cum_sentence": "It is high. It has 8 m."},
    ],
    "llm_response": "It is high. It has 8 m.",
}


def write(path, records, lines=True):
    path.write_text("\n".join(map(json.dumps, records)) if lines else json.dumps(records), encoding="utf-8")
    return path


def test_halueval_makes_two_examples(tmp_path):
    path = write(tmp_path / "qa_data.json", [HALUEVAL])
    assert detect([path]).name == "halueval"
    right, wrong = read_examples([path])
    assert (right.response, right.hallucinated, right.labels) == ("Yes", False, ())
    assert (wrong.response, wrong.hallucinated, wrong.label_kind) == ("A is new.", True, "response")
    assert right.group == wrong.group and right.passages == ("A is old.",) and right.question == "Is A old?"
    assert [right.id, wrong.id] == ["halueval-qa-1-right", "halueval-qa-1-hallucinated"]


def test_halueval_summaries_and_dialogues(tmp_path):
    summary = {"document": "Long.", "right_summary": "Short.", "hallucinated_summary": "Wrong."}
    dialogue = {
        "knowledge": "k",
        "dialogue_history": "[Human]: hi",
        "right_response": "r",
        "hallucinated_response": "w",
    }
    tasks = [example.task for example in read_examples([write(tmp_path / "a.json", [summary, dialogue])])]
    assert tasks == ["summarization", "summarization", "dialogue", "dialogue"]


def test_halueval_without_context_is_refused_record_by_record(tmp_path):
    general = {"ID": "1", "user_query": "q", "chatgpt_response": "a", "hallucination": "no"}
    bad, *good = read_examples([write(tmp_path / "a.json", [general, HALUEVAL])])
    assert "cannot be judged against a context" in bad.error and len(good) == 2


def test_lookback_lens_labels_every_occurrence(tmp_path):
    path = write(tmp_path / "anno-nq.jsonl", [LOOKBACK])
    assert detect([path]).name == "lookback-lens"
    (example,) = read_examples([path])
    assert example.labels == (Label(3, 8), Label(15, 20)) and example.hallucinated and example.label_kind == "span"
    assert example.question == "Where is it?" and example.passages == ("One text.\nAnother in Rome.",)
    assert example.task == "qa" and example.id == "lookback-lens-7" and example.extra == {"gold_answers": "['Rome']"}


def test_lookback_lens_summaries_lose_both_markers(tmp_path):
    record = LOOKBACK | {"document": "#Document#: #Article#: A tale.", "decision": True, "problematic_spans": []}
    (example,) = read_examples([write(tmp_path / "a", [record])])
    assert example.passages == ("A tale.",) and example.task == "summarization"
    assert example.labels == () and example.hallucinated is False


@pytest.mark.parametrize(
    ("change", "labels", "hallucinated", "kind", "extra"),
    [
        ({"problematic_spans": ["Paris", "Lyon"]}, 2, True, "span", {"unmatched_spans": ["Lyon"]}),
        ({"problematic_spans": ["Lyon"]}, None, True, "response", {"unmatched_spans": ["Lyon"]}),
        ({"problematic_spans": []}, None, True, "response", {}),
        ({"decision": None}, None, None, None, {"ignored_spans": ["Paris"]}),
        ({"decision": True}, 0, False, "span", {"ignored_spans": ["Paris"]}),
        ({"problematic_spans": ['"In Paris"']}, 1, True, "span", {}),
    ],
)
def test_lookback_lens_keeps_what_cannot_be_placed(tmp_path, change, labels, hallucinated, kind, extra):
    (example,) = read_examples([write(tmp_path / "a", [LOOKBACK | change])])
    assert (None if example.labels is None else len(example.labels)) == labels
    assert (example.hallucinated, example.label_kind) == (hallucinated, kind)
    assert example.extra == {"gold_answers": "['Rome']"} | extra


@pytest.mark.parametrize("change", [{"decision": "False"}, {"problematic_spans": "Paris"}, {"problematic_spans": [1]}])
def test_lookback_lens_of_another_shape_is_refused(tmp_path, change):
    (bad,) = read_examples([write(tmp_path / "a", [LOOKBACK | change])])
    assert isinstance(bad, BadRecord) and "must be" in bad.error


OLD_RAGAS = {
    "question": "How high?",
    "contexts": ["It is 9 m high.", "It is old."],
    "answer": "8 m.",
    "ground_truth": "9 m",
}
NEW_RAGAS = {
    "user_input": "How high?",
    "retrieved_contexts": OLD_RAGAS["contexts"],
    "response": "8 m.",
    "reference": "9 m",
}


@pytest.mark.parametrize(
    "record", [OLD_RAGAS, NEW_RAGAS, OLD_RAGAS | {"ground_truth": None, "ground_truths": ["9 m", " "]}]
)
def test_ragas_old_and_new(tmp_path, record):
    path = write(tmp_path / "a.jsonl", [record, record | {"id": 7}])
    assert detect([path]).name == "ragas"
    first, second = read_examples([path])
    assert (first.id, second.id) == ("ragas-1", "7") and first.labels is None and first.hallucinated is None
    assert (first.question, first.response, first.passages) == ("How high?", "8 m.", ("It is 9 m high.", "It is old."))
    assert first.extra == {"gold_answers": ["9 m"]}


@pytest.mark.parametrize(
    "change", [{"user_input": [{"content": "hi"}]}, {"retrieved_contexts": "one"}, {"retrieved_contexts": [1]}]
)
def test_ragas_of_another_shape_is_refused(tmp_path, change):
    bad, good = read_examples([write(tmp_path / "a.jsonl", [NEW_RAGAS | change, NEW_RAGAS])], "ragas")
    assert isinstance(bad, BadRecord) and "must be" in bad.error and good.response == "8 m."


@pytest.mark.parametrize("given", sorted(FORMATS))
@pytest.mark.parametrize("record", [HALUEVAL, LOOKBACK, HALLURAG, {}, {"data": None}, {"prompt": 1}], ids=str)
def test_records_of_another_format_are_refused_one_by_one(tmp_path, given, record):
    path = write(tmp_path / "a.jsonl", [record])
    try:
        found = list(read_examples([path], given))
    except InputError:
        return
    assert found and all(isinstance(item, (Example, BadRecord)) for item in found)


def test_hallurag_labels_sentences(tmp_path):
    path = write(tmp_path / "val_org_some-7b (int8).json", [HALLURAG], lines=False)
    assert detect([path]).name == "hallurag"
    (example,) = read_examples([path])
    assert [example.response[label.start : label.end] for label in example.labels] == ["It has 8 m."]
    assert (example.split, example.label_kind, example.hallucinated) == ("dev", "sentence", True)
    assert example.passages == ("Tower\nIt is 9 m high.", "Lake\nIt is deep.")
    assert example.id == "hallurag-some-7b-int8-4-0-answerable" and example.source_id == "4"
    assert example.extra == {"quantization": "int8", "answerable": True, "chunk_size": 350}


@pytest.mark.parametrize(
    ("targets", "labels", "hallucinated", "kind"),
    [
        ((0, 1), 1, True, "sentence"),
        ((0, 0), 0, False, "sentence"),
        (("invalid", 1), None, True, "response"),
        ((None, 0), None, None, None),
    ],
)
def test_hallurag_does_not_guess_invalid_sentences(tmp_path, targets, labels, hallucinated, kind):
    data = [item | {"target": target} for item, target in zip(HALLURAG["sentence_data"], targets, strict=True)]
    (example,) = read_examples([write(tmp_path / "a", [HALLURAG | {"sentence_data": data}])])
    assert (None if example.labels is None else len(example.labels)) == labels
    assert (example.hallucinated, example.label_kind, example.split) == (hallucinated, kind, None)
    assert example.extra.get("invalid_sentences", 0) == sum(target in (None, "invalid") for target in targets)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"prompt": HALLURAG["prompt"] | {"rag_prompt": None}}, "no 'rag_prompt'"),
        ({"prompt": HALLURAG["prompt"] | {"rag_prompt": [{"content": "no chunks"}]}}, "does not list its chunks"),
        ({"prompt": "text"}, "'prompt' must be an object"),
        ({"sentence_data": [{"target": 0, "cum_sentence": "Elsewhere."}]}, "is not the response up to its end"),
        ({"sentence_data": [{"target": "perhaps", "cum_sentence": "It is"}]}, "must be yes or no"),
        ({"sentence_data": None}, "'sentence_data' must be a list"),
        ({"model": 3}, "'model' must be a string"),
    ],
)
def test_hallurag_of_another_shape_is_refused(tmp_path, change, error):
    bad, good = read_examples([write(tmp_path / "a", [HALLURAG | change, HALLURAG])])
    assert error in bad.error and isinstance(good, Example)


def test_own_records_are_checked_against_the_text_of_labels(tmp_path):
    record = {"id": "a", "context": "c", "response": "It is 9.", "labels": [{"start": 6, "end": 7, "text": "9"}]}
    wrong = record | {"id": "b", "labels": [{"start": 5, "end": 7, "text": "9"}]}
    path = write(tmp_path / "a", [record, wrong, {"response": "r", "context": []}], lines=False)
    assert detect([path]).name == "groundscope"
    good, bad, unnamed = read_examples([path])
    assert good.labels == (Label(6, 7),) and "carries the text '9'" in bad.error and unnamed.id == "line-3"


def test_unknown_shapes_are_refused_with_their_fields(tmp_path):
    with pytest.raises(InputError, match=r"not known: its first record has the fields \['prompt', 'score'\]"):
        read_examples([write(tmp_path / "a", [{"prompt": "p", "score": 1}])])
    with pytest.raises(InputError, match="holds no records"):
        read_examples([write(tmp_path / "b", [])])


def test_a_named_format_is_taken_at_its_word(tmp_path):
    path = write(tmp_path / "a", [HALUEVAL])
    assert len(list(read_examples([path], "halueval"))) == 2
    assert all(isinstance(record, BadRecord) for record in read_examples([path], "label-studio"))
    with pytest.raises(UnknownNameError, match="Did you mean 'halueval'"):
        read_examples([path], "haluevil")


def test_formats_are_not_mixed(tmp_path):
    write(tmp_path / "a.jsonl", [HALUEVAL])
    write(tmp_path / "b.jsonl", [LOOKBACK])
    with pytest.raises(InputError, match="different formats"):
        read_examples([tmp_path])


def test_places_that_cannot_be_read(tmp_path):
    for sources, message in (([tmp_path], "holds no"), (["-"], "Standard input"), ([], "No file"), (["x"], "x")):
        with pytest.raises(InputError, match=message):
            read_examples(sources)


def test_every_format_is_recognised_by_one_reader_first():
    records = {"halueval": HALUEVAL, "lookback-lens": LOOKBACK, "hallurag": HALLURAG}
    for name, record in records.items():
        assert next(form.name for form in FORMATS.values() if form.recognises(record)) == name


OTHER_IDS = {
    "ragas": ({"user_input": "q", "retrieved_contexts": ["c"], "response": "r"}, "id"),
    "lookback-lens": (LOOKBACK, "index"),
    "label-studio": ({"data": {"response": "r", "context": "c"}, "annotations": []}, "id"),
    "groundscope": ({"context": "c", "response": "r"}, "id"),
}


@pytest.mark.parametrize("given", OTHER_IDS)
@pytest.mark.parametrize("value", [["a"], {}, 3.0, True])
def test_every_format_refuses_ids_that_are_neither_text_nor_whole_numbers(tmp_path, given, value):
    record, field = OTHER_IDS[given]
    path = write(tmp_path / "a.jsonl", [record | {field: value}, record | {field: 8}])
    bad, good = read_examples([str(path)], given)
    assert isinstance(bad, BadRecord) and f"'{field}' must be a string or a whole number" in bad.error
    assert isinstance(good, Example) and good.id is not None and good.id.endswith("8")
