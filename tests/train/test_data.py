"""Labelled data are the same whether a file or a trace store gives them."""

import json
import logging
from dataclasses import replace

import pytest

from groundscope.detectors.registry import from_name
from groundscope.errors import InputError
from groundscope.trace.storage.store import TraceWriter
from groundscope.train.data import labelled, open_data


def _store(folder, traced):
    writer = TraceWriter(folder, {"fingerprint": json.loads(json.dumps(dict(traced[0].trace.fingerprint)))})
    for number, item in enumerate(traced):
        writer.write(number, item)
    writer.finish([])
    return folder


def _changed(item, **fields):
    return replace(item, example=replace(item.example, **fields))


def test_a_store_gives_labelled_examples_alone_as_a_file_does(tmp_path, traced, caplog):
    mixed = [_changed(traced[0], labels=None, hallucinated=None), _changed(traced[1], label_kind="claim"), *traced[2:8]]
    with caplog.at_level(logging.WARNING, "groundscope"):
        opened = open_data(_store(tmp_path / "s", mixed), [from_name("lookback-lens")])
    assert [item.example.id for item in opened.traced] == [f"e{i}" for i in range(2, 8)]
    assert list(labelled(item.example for item in mixed)) == [item.example for item in opened.traced]
    assert "1 records have no labels" in caplog.text and "label_kind of example 'e1'" in caplog.text
    assert len(open_data(tmp_path / "s", [from_name("lookback-lens")], only_labelled=False).traced) == 8


def test_a_store_without_labels_is_refused(tmp_path, traced):
    bare = [_changed(item, labels=None, hallucinated=None) for item in traced[:3]]
    with pytest.raises(InputError, match="no usable labelled records"):
        open_data(_store(tmp_path / "s", bare), [from_name("lookback-lens")])
