"""What was edited in a shard, or cannot be, is told; shards of the first format are read as they are."""

import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from stored import column, meta, settings_for, write_store

from groundscope.errors import InputError
from groundscope.trace.signals import SIGNALS
from groundscope.trace.storage.store import TraceStore, TraceWriter, shards


def _first_format(store):
    """Make of a store what the first format was."""
    for path in shards(store):
        meta(lambda meta: {name: value for name, value in (meta | {"format": 1}).items() if name != "digests"}, False)(
            path
        )
    index = json.loads((store / "store.json").read_text())
    (store / "store.json").write_text(json.dumps(index | {"format": 1}))


EDITS = {
    "response": ("example", lambda text: text.replace("1887", "1889")),
    "passage": ("example", lambda text: text.replace("tower", "bridge")),
    "label": ("example", lambda text: text.replace('"end": 2', '"end": 3')),
    "id": ("id", lambda _: "other"),
    "place": ("number", lambda _: 17),
    "layout": ("layout", lambda text: text.replace('"blind_layers": 0', '"blind_layers": 1')),
    "tokens": ("response_ids", lambda ids: [ids[0] + 1, *ids[1:]]),
    "signal per head": ("signal:lookback_ratio", lambda values: [0.25, *values[1:]]),
    "signal": ("signal:token_logprob", lambda values: [values[0] - 1, *values[1:]]),
    "no signal": ("signal:mmd", lambda _: None),
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_was_edited_is_told(tmp_path, traced, edit):
    store = write_store(tmp_path / "s", traced)
    name, change = EDITS[edit]
    before = pq.read_table(tmp_path / "s" / "part-00000.parquet")[name].to_pylist()
    column(name, change, sealed=False)(tmp_path / "s" / "part-00000.parquet")
    assert pq.read_table(tmp_path / "s" / "part-00000.parquet")[name].to_pylist() != before
    with pytest.raises(InputError, match=rf"damaged: its column '{name}' was changed after.*extract again"):
        store.read()
    if name.startswith("signal:"):
        assert len(store.read(["token_entropy"])) == 3  # what is not loaded is not read


@pytest.mark.parametrize("name", ["model", "shapes"])
def test_what_is_said_about_a_shard_is_not_edited_either(tmp_path, traced, name):
    store = write_store(tmp_path / "s", traced)
    meta(lambda meta: meta | {name: {}}, sealed=False)(tmp_path / "s" / "part-00000.parquet")
    with pytest.raises(InputError, match="damaged: its description was changed"):
        store.read(())


def test_rewriting_without_change_is_no_edit(tmp_path, traced):
    store = write_store(tmp_path / "s", traced)
    path = tmp_path / "s" / "part-00000.parquet"
    pq.write_table(pq.read_table(path), path, row_group_size=1, compression="gzip")
    assert len(store.read()) == 3


def _wrong(name):
    spec = SIGNALS[name]
    return [value for value in (spec.low - 0.01, spec.high + 0.01) if np.isfinite(value)]


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in SIGNALS for value in _wrong(name)])
def test_values_out_of_a_signals_range_are_told(tmp_path, traced, name, value):
    item = traced[1]
    array = item.trace[name].copy()
    array.flat[-1] = value
    spoilt = replace(item, trace=replace(item.trace, signals={**item.trace.signals, name: array}))
    store = write_store(tmp_path / "s", [traced[0], spoilt, traced[2]])
    with pytest.raises(InputError, match=rf"signal '{name}' of the example 'r1' holds -?[0-9.]+, and lies in \["):
        store.read([name])
    assert len(store.read([other for other in ("mmd", "token_entropy") if other != name][:1])) == 3


def test_a_store_of_the_first_format_is_read_and_gone_on_with(tmp_path, traced, caplog):
    whole = write_store(tmp_path / "s", traced).read()
    assert not caplog.records
    _first_format(tmp_path / "s")
    store = TraceStore(tmp_path / "s")
    for one, other in zip(store.read(), whole, strict=True):
        assert one.example == other.example
        np.testing.assert_array_equal(one.trace["mmd"], other.trace["mmd"])
    assert "whether it was changed since cannot be told. Extract again" in caplog.text
    index = json.loads((tmp_path / "s" / "store.json").read_text())
    (tmp_path / "s" / "store.json").write_text(json.dumps(index | {"complete": False}))
    assert TraceWriter(tmp_path / "s", settings_for(traced)).finished == {"r0", "r1", "r2"}
    write_store(tmp_path / "s", traced)
    assert json.loads((tmp_path / "s" / "store.json").read_text())["format"] == 2
    assert len(TraceStore(tmp_path / "s").read()) == 3


def test_a_store_is_whole_or_lacks_something_or_is_damaged(tmp_path, traced):
    store = write_store(tmp_path / "s", traced)
    assert store.is_whole()
    path = tmp_path / "s" / "part-00000.parquet"
    raw = path.read_bytes()
    path.unlink()
    assert not store.is_whole()
    path.write_bytes(raw)
    column("example", lambda text: text.replace("1887", "1889"), sealed=False)(path)
    with pytest.raises(InputError, match="was changed after it was written"):
        store.is_whole()
