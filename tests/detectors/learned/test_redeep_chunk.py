"""ReDeEP at chunk level: chunks are the unit of learning and of the response score."""

from __future__ import annotations

import numpy as np
import pytest
from planted import HEAD, LAYER, planted

from groundscope.detectors.learned.redeep_chunk import ReDeEPChunk
from groundscope.errors import InputError
from groundscope.example import Example, Label
from groundscope.learn.labels import token_labels
from groundscope.reading import Reader
from groundscope.text.chunks import ChunkConfig
from groundscope.trace.traced import TracedExample


@pytest.fixture(scope="module")
def train(tiny):
    return planted(tiny, 30, seed=1, chunks=3, strength=4.0)


@pytest.fixture(scope="module")
def dev(tiny):
    return planted(tiny, 16, seed=2, chunks=3, strength=4.0)


@pytest.mark.parametrize("variant", ["paper", "official"])
@pytest.mark.parametrize("kind", ["span", "response"])
def test_it_finds_the_head_and_the_layer_that_tell(tiny, dev, variant, kind):
    items = planted(tiny, 60, seed=1, kind=kind, chunks=3, strength=6.0)
    detector = ReDeEPChunk(heads=1, layers=1, beta=0.5, variant=variant).fit(items)
    assert detector.heads_ == (HEAD,) and detector.layers_ == (LAYER,)
    assert detector.level_ == ("chunk" if kind == "span" else "response")
    assert detector.score(dev) > 0.8


@pytest.mark.parametrize("variant", ["paper", "official"])
def test_a_score_is_what_the_documentation_says(train, variant):
    detector = ReDeEPChunk(heads=1, layers=1, beta=0.7, variant=variant).fit(train)
    ((layer, head),), (memory_layer,) = detector.heads_, detector.layers_
    pool = np.sum if variant == "official" else np.mean

    def chunks(trace):
        number = trace["response_chunk"]
        rows = [np.flatnonzero(number == n) for n in np.unique(number)]
        context = [trace["chunk_context_score"][r[0], layer, head] for r in rows]
        memory = [pool(trace["parametric_knowledge_score"][r, memory_layer].astype(np.float64)) for r in rows]
        return rows, np.array(context, dtype=np.float64), np.array(memory)

    everything = [chunks(item.trace) for item in train]
    context, memory = (np.concatenate([entry[i] for entry in everything]) for i in (1, 2))
    rows, own_context, own_memory = everything[0]
    z = (own_memory - memory.min()) / np.ptp(memory) - 0.7 * (own_context - context.min()) / np.ptp(context)
    got = detector.token_scores(train[0].trace)
    for index, tokens in enumerate(rows):
        np.testing.assert_allclose(got[tokens], z[index], atol=1e-9)
    assert detector.response_score(got) == pytest.approx(z.mean(), abs=1e-9)
    assert ReDeEPChunk(response="max").response_score(got) == pytest.approx(z.max(), abs=1e-9)


def test_a_chunk_is_marked_if_any_of_its_tokens_is(train):
    for item in train[:6]:
        labels, number = token_labels(item.example, item.trace.layout), item.trace["response_chunk"]
        want = [labels[number == n].any() for n in np.unique(number)]
        assert ReDeEPChunk()._unit_labels(item).tolist() == want


def test_the_response_score_weighs_chunks_not_tokens():
    scores = np.array([1.0, 1, 1, 1, 3, 5, 5])
    assert ReDeEPChunk().response_score(scores) == 3
    scores[4] = np.nan
    assert ReDeEPChunk().response_score(scores) == 3
    scores[1] = np.nan  # a hole cuts no chunk in two
    assert ReDeEPChunk().response_score(scores) == 3


def test_the_maximum_is_chosen_for_where_it_is_asked_for(train, dev):
    mean, highest = (ReDeEPChunk(response=how).fit(train, dev) for how in ("mean", "max"))
    assert {mean.chosen_on_, highest.chosen_on_} == {"dev"}
    assert highest.score(dev) >= ReDeEPChunk(
        heads=len(mean.heads_), layers=len(mean.layers_), beta=mean.beta_, response="max"
    ).fit(train).score(dev)


def test_texts_are_cut_read_learnt_from_and_scored(tiny):
    rng = np.random.default_rng(0)
    words = "the tower was completed in 1889 by engineers of Paris"
    examples = []
    for number in range(12):
        sentences = [" ".join(rng.permutation(words.split())).capitalize() + "." for _ in range(6)]
        response = " ".join(sentences[:3])
        marks = (Label(len(sentences[0]) + 1, len(response)),) if number % 2 else ()
        passages = (" ".join(sentences[1:4]), sentences[5])
        examples.append(Example("What?", passages, response, marks, id=f"e{number}", label_kind="span"))
    detector = ReDeEPChunk(size=60, overlap=0, heads=2, layers=1, beta=0.5)
    items = list(Reader(tiny, [detector], fingerprint=True).read_many(examples))
    assert all(isinstance(item, TracedExample) for item in items)
    detector.fit(items)
    assert detector.level_ == "chunk"
    for item in items:
        chunks = item.trace.layout.chunks
        assert len(chunks.response) == 3 and len(chunks.passages) >= 4
        scores = detector.token_scores(item.trace)
        assert [np.ptp(scores[start:end]) for start, end in chunks.response] == [0, 0, 0]
        assert len(np.unique(scores)) == 3
        assert detector.response_score(scores) == pytest.approx(np.unique(scores).mean())


def test_it_says_how_chunks_are_cut():
    assert ReDeEPChunk().chunking == ChunkConfig(256, 20, None)
    assert ReDeEPChunk(size=100, overlap=0, embedder="some/model").chunking == ChunkConfig(100, 0, "some/model")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"size": 0}, "'size' parameter"),
        ({"overlap": 256}, "'overlap' parameter"),
        ({"embedder": ""}, "'embedder' parameter"),
        ({"response": "median"}, "'response' parameter of ReDeEPChunk"),
        ({"candidates": "none"}, "'candidates' parameter of ReDeEPChunk"),
    ],
)
def test_wrong_parameters_are_refused_at_once(arguments, words):
    with pytest.raises(InputError, match=words):
        ReDeEPChunk(**arguments)
