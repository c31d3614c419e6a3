"""Entailment by a classifier: chunks, labels, special tokens, loading."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import tiny_classifier
import torch
from hypothesis import given
from hypothesis import strategies as st

import groundscope as gs
from groundscope.detectors.thresholds import read_sample, reference_sample
from groundscope.detectors.untrained.nli import Nli
from groundscope.errors import InputError, PrerequisiteError
from groundscope.lm.companions.pairs import PairClassifier, windows
from groundscope.lm.prompt.template import PromptTemplate

FILLER = " ".join(f"word{number}" for number in range(12))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_classifier.save(tmp_path_factory.mktemp("classifier"))


@pytest.fixture(scope="module")
def classifier(folder):
    return PairClassifier.load(str(folder), "entailment", "cpu")


def gathered(detector, lm, passages, response):
    example = gs.Example("", passages, response)
    layout = lm.renderer().layout(example)
    arrays = detector.gather(lm, example, layout)
    assert list(arrays) == list(detector.own_signals)
    (values,) = arrays.values()
    trace = gs.Trace(layout, arrays)
    np.testing.assert_array_equal(detector.token_scores(trace), values.astype(np.float64))
    return layout, values


def test_chances_are_the_models_own_on_the_tokenizers_own_pairs(classifier):
    pairs = [("word1 evidence word2", "claim word3 ."), (FILLER, "claim"), ("word4", "claim word1 word2 word3")]
    for passage, sentence in pairs:
        batch = classifier.tokenizer(passage, sentence, return_tensors="pt")
        with torch.no_grad():
            want = classifier.model(**batch).logits.softmax(-1)[0, 2].item()
        assert classifier.support([sentence], [passage], 4) == [pytest.approx(want, abs=1e-6)]
    together = classifier.support([sentence for _, sentence in pairs], [pairs[0][0], pairs[1][0]], 2)
    apart = [max(classifier.support([s], [p], 1)[0] for p in (pairs[0][0], pairs[1][0])) for _, s in pairs]
    np.testing.assert_allclose(together, apart, atol=1e-6)


@pytest.mark.parametrize("chunk", [0, 7, 19])
def test_evidence_in_one_chunk_of_many_is_enough(classifier, chunk):
    parts = [FILLER] * 20
    assert classifier.support(["claim word1 ."], [" ".join(parts)], 8)[0] < 0.1
    parts[chunk] = f"{FILLER} evidence"
    assert len(" ".join(parts).split()) > 6 * tiny_classifier.LIMIT
    assert classifier.support(["claim word1 ."], [" ".join(parts)], 8)[0] > 0.9


@pytest.mark.parametrize("position", range(3))
def test_evidence_in_one_passage_of_several_is_enough(classifier, position):
    passages = [FILLER, "word1", FILLER]
    passages[position] += " evidence"
    assert classifier.support(["claim word2 ."], passages, 2)[0] > 0.9


def test_without_passages_nothing_is_supported(classifier):
    assert classifier.support(["claim"], [], 2) == [0.0]
    assert classifier.support([], ["evidence"], 2) == []


def test_a_long_sentence_is_read_in_parts_and_scores_as_the_least_supported(classifier):
    long = "claim " + " ".join([FILLER] * 5)
    assert len(long.split()) > tiny_classifier.LIMIT
    (got,) = classifier.support([long], ["word1 evidence"], 4)
    parts = windows(classifier._ids(long), classifier.room // 2)
    words = [classifier.tokenizer.decode(part) for part in parts]
    assert len(parts) > 3
    assert got == pytest.approx(min(classifier.support(words, ["word1 evidence"], 4)), abs=1e-6)


def test_names_of_special_tokens_in_a_passage_stay_text(classifier):
    (ids,) = [classifier._ids("word1 [SEP] evidence [PAD]")]
    assert not {0, 1, 2} & set(ids)


@given(st.integers(0, 60), st.integers(1, 20), st.integers(0, 19))
def test_windows_hold_every_token_in_order(length, size, overlap):
    overlap = min(overlap, size - 1)
    ids = list(range(length))
    parts = windows(ids, size, overlap)
    assert all(len(part) <= size for part in parts) and sorted({i for part in parts for i in part}) == ids
    assert [part[0] for part in parts if part] == sorted({part[0] for part in parts if part})


def test_tokens_carry_their_sentences_score(folder, tiny):
    response = "  The claim word1. A claim word2 here!\n\n Is claim word7 so?"
    detector = Nli(str(folder))
    layout, values = gathered(detector, tiny, (FILLER,), response)
    assert values.dtype == np.float32 and values.shape == (layout.response_length,)
    sentences = ["The claim word1.", "A claim word2 here!", "Is claim word7 so?"]
    scores = [1 - value for value in detector.classifier_.support(sentences, [FILLER], 3)]
    assert len({round(score, 7) for score in scores}) == 3
    second, third = response.index("A claim"), response.index("Is claim")
    for (start, end), value in zip(layout.response_offsets.tolist(), values, strict=True):
        place = start if not response[start:end].strip() else end - 1  # white space goes with what stands before it
        number = (place >= second) + (place >= third)
        assert value == pytest.approx(scores[number], abs=1e-6), response[start:end]
    assert (values > 0.9).all()
    assert (gathered(Nli(str(folder)), tiny, ("word1 evidence",), response)[1] < 0.1).all()


def test_two_classes_one_output_and_a_class_by_number(tmp_path, folder):
    two = tiny_classifier.save(tmp_path / "two", labels=("not_entailment", "entailment"))
    read = PairClassifier.load(str(two), "entailment", "cpu")
    assert read.label == 1
    assert read.support(["claim"], ["word1 evidence"], 1)[0] > 0.9 > 0.1 > read.support(["claim"], ["word1"], 1)[0]
    assert PairClassifier.load(str(folder), 0, "cpu").support(["claim"], ["word1"], 1)[0] > 0.9
    model = copy.deepcopy(read.model)
    model.classifier = torch.nn.Linear(16, 1)
    model.config.num_labels = 1
    single = PairClassifier(model, read.tokenizer, 0, 30)
    batch = read.tokenizer("word1", "claim", return_tensors="pt")
    with torch.no_grad():
        want = model(**batch).logits.sigmoid().item()
    assert single.support(["claim"], ["word1"], 1) == [pytest.approx(want, abs=1e-6)]


@pytest.mark.parametrize("label", ["supported", 3, -1])
def test_a_class_that_is_not_there_is_refused_with_those_that_are(folder, label):
    with pytest.raises(InputError, match=r"has no class .*ENTAILMENT.*label="):
        PairClassifier.load(str(folder), label, "cpu")


def test_what_cannot_be_loaded_is_refused(tmp_path, folder):
    with pytest.raises(PrerequisiteError, match=r"could not be loaded on 'cpu'.*safetensors weights"):
        PairClassifier.load(str(tmp_path), "entailment", "cpu")
    with pytest.raises(PrerequisiteError, match="could not be loaded on 'nonsense'"):
        PairClassifier.load(str(folder), "entailment", "nonsense")
    from transformers import BertModel

    base = tmp_path / "base"
    read = PairClassifier.load(str(folder), "entailment", "cpu")
    BertModel(read.model.config).save_pretrained(base)
    read.tokenizer.save_pretrained(base)
    with pytest.raises(InputError, match="is incomplete: 2 weight"):
        PairClassifier.load(str(base), "entailment", "cpu")


def test_a_refusal_is_remembered(tmp_path, tiny, monkeypatch):
    detector = Nli(str(tmp_path / "nothing"))
    with pytest.raises(PrerequisiteError, match="could not be loaded"):
        gathered(detector, tiny, (FILLER,), "claim word1.")
    monkeypatch.setattr(PairClassifier, "load", None)
    with pytest.raises(PrerequisiteError, match="could not be loaded"):
        gathered(detector, tiny, (FILLER,), "claim word1.")


def test_a_classifier_that_is_of_no_use_is_loaded_once_and_blamed(folder, tiny, monkeypatch):
    detector = Nli(str(folder), label="nonsense")
    with pytest.raises(PrerequisiteError, match=r"has no class .*ENTAILMENT"):
        gathered(detector, tiny, (FILLER,), "claim word1.")
    monkeypatch.setattr(PairClassifier, "load", None)
    with pytest.raises(PrerequisiteError, match=r"has no class .*ENTAILMENT"):
        read_sample(tiny, [detector], PromptTemplate(), reference_sample())


def test_it_is_loaded_once_and_never_copied(folder, tiny):
    detector = Nli(str(folder), batch_size=3)
    assert not hasattr(detector, "classifier_")
    want = gathered(detector, tiny, (FILLER,), "claim word1.")[1]
    first = detector.classifier_
    gathered(detector, tiny, (FILLER,), "claim word2.")
    assert detector.classifier_ is first
    for other in (copy.deepcopy(detector), pickle.loads(pickle.dumps(detector)), Nli(**detector.get_params())):
        assert not hasattr(other, "classifier_") and other.get_params() == detector.get_params()
        np.testing.assert_array_equal(gathered(other, tiny, (FILLER,), "claim word1.")[1], want)
    assert len(pickle.dumps(detector)) < 1000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": ""}, "'model' parameter of Nli"),
        ({"model": 3}, "'model' parameter of Nli"),
        ({"label": None}, "'label' parameter of Nli"),
        ({"label": True}, "'label' parameter of Nli"),
        ({"device": 0}, "'device' parameter of Nli"),
        ({"batch_size": 0}, "'batch_size' parameter of Nli"),
    ],
)
def test_parameters_that_are_none_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        Nli(**options)
