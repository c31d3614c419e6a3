"""Stores come back as they were written, are gone on with, and tell what is missing or damaged."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stored import column, meta, rewrite, settings_for, write_store

from groundscope.errors import InputError, MismatchError
from groundscope.trace.signals import SIGNALS
from groundscope.trace.storage import store as module
from groundscope.trace.storage.store import STORE, TraceStore, TraceWriter, shards


def test_everything_comes_back(tmp_path, traced):
    got = write_store(tmp_path / "s", traced)
    assert len(got) == 3 and set(got.signals) == set(traced[0].trace)
    assert got.fingerprint == json.loads(json.dumps(traced[0].trace.fingerprint))
    assert got.unread[0]["id"] == "r9"
    for before, after in zip(traced, got.read(), strict=True):
        assert after.example == before.example and after.group == before.group
        one, other = before.trace.layout, after.trace.layout
        np.testing.assert_array_equal(one.prompt_ids, other.prompt_ids)
        np.testing.assert_array_equal(one.response_ids, other.response_ids)
        np.testing.assert_array_equal(one.response_offsets, other.response_offsets)
        assert (one.passages, one.header, one.passage_numbers) == (other.passages, other.header, other.passage_numbers)
        assert dict(one.contrast) == dict(other.contrast)
        assert after.trace.attention_layers == before.trace.attention_layers
        for name, values in before.trace.items():
            half = SIGNALS[name].axes == "token x layer x head"
            assert after.trace[name].dtype == np.float32 and after.trace[name].shape == values.shape
            tolerance = 1e-3 if half else 0
            np.testing.assert_allclose(after.trace[name], values, rtol=tolerance, atol=tolerance / 100, err_msg=name)


def test_the_first_records_are_those_of_the_input(tmp_path, traced):
    writer = TraceWriter(tmp_path / "s", settings_for(traced))
    for number, item in zip((4, 0, 7), traced, strict=True):
        writer.write(number, item)
    writer.finish([{"outcome": "no_answer", "message": "m", "id": f"r{number}", "number": number} for number in (2, 5)])
    store = TraceStore(tmp_path / "s")
    for limit, ids, unread in (
        (4, ["r1"], ["r2"]),
        (5, ["r1", "r0"], ["r2"]),
        (None, ["r1", "r0", "r2"], ["r2", "r5"]),
    ):
        assert [item.example.id for item in store.read((), limit)] == ids
        assert [item["id"] for item in store.unread_within(limit)] == unread


def test_only_what_is_asked_for_is_loaded(tmp_path, traced):
    got = write_store(tmp_path / "s", traced).read(["mmd"])
    assert [list(item.trace) for item in got] == [["mmd"]] * 3
    with pytest.raises(InputError, match="lacks the signals hidden_state_3"):
        TraceStore(tmp_path / "s").read(["hidden_state_3"])


def test_an_interrupted_run_goes_on(tmp_path, traced):
    folder = tmp_path / "s"
    writer = TraceWriter(folder, settings_for(traced))
    writer.write(2, traced[2])
    writer.flush()
    with pytest.raises(InputError, match="not finished"):
        TraceStore(folder)
    assert TraceWriter(folder, settings_for(traced)).finished == {"r2"}
    assert [item.example.id for item in write_store(folder, traced).read()] == ["r0", "r1", "r2"]


def test_a_crash_while_writing_leaves_no_shard(tmp_path, traced, monkeypatch):
    writer = TraceWriter(tmp_path / "s", settings_for(traced))
    monkeypatch.setattr(module.json, "dumps", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        writer.write(0, traced[0])
        writer.flush()
    assert shards(tmp_path / "s") == [] and not list((tmp_path / "s").glob("*.tmp"))


def test_what_a_killed_run_was_writing_is_removed(tmp_path, traced):
    folder = tmp_path / "s"
    folder.mkdir()
    (folder / "store.json.123.tmp").write_text("{")
    STORE.check(folder)
    (folder / "part-00000.tmp").write_bytes(b"PAR1")
    write_store(folder, traced)
    assert sorted(path.name for path in folder.iterdir()) == ["part-00000.parquet", "store.json"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="no trace store"):
        STORE.check(tmp_path / "other")


def test_other_settings_are_refused(tmp_path, traced):
    write_store(tmp_path / "s", traced)
    with pytest.raises(MismatchError, match="seed"):
        TraceWriter(tmp_path / "s", settings_for(traced, seed=3))
    other = settings_for(traced) | {"fingerprint": {**traced[0].trace.fingerprint, "weights": "x"}}
    with pytest.raises(MismatchError, match="fingerprint"):
        TraceWriter(tmp_path / "s", other)
    TraceWriter(tmp_path / "s", other, overwrite=True)
    assert shards(tmp_path / "s") == []


def test_a_shard_of_another_model_is_refused(tmp_path, traced):
    write_store(tmp_path / "a", traced)
    foreign = [
        replace(item, trace=replace(item.trace, fingerprint={**item.trace.fingerprint, "weights": "x"}))
        for item in traced
    ]
    write_store(tmp_path / "b", foreign)
    shards(tmp_path / "b")[0].rename(tmp_path / "a" / "part-00001.parquet")
    with pytest.raises(MismatchError, match="another model"):
        TraceStore(tmp_path / "a").read()


@pytest.mark.parametrize("damage", ["cut", "garbage"])
def test_a_damaged_shard_is_named(tmp_path, traced, damage):
    write_store(tmp_path / "s", traced)
    path = shards(tmp_path / "s")[0]
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2] if damage == "cut" else b"PAR1" + b"\0" * 500)
    with pytest.raises(InputError, match=r"part-00000\.parquet.*damaged"):
        TraceStore(tmp_path / "s").read()


@pytest.mark.parametrize("content", [None, "", "[]", '{"format": 99}'])
def test_what_is_no_store_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "store.json").write_text(content)
    with pytest.raises(InputError, match="no trace store"):
        TraceStore(tmp_path)


def test_a_folder_with_other_things_is_left_alone(tmp_path, traced):
    (tmp_path / "thesis.tex").write_text("years")
    with pytest.raises(InputError, match="no trace store"):
        TraceWriter(tmp_path, settings_for(traced), overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "years"


BROKEN_SHARDS = {
    "empty": lambda path: path.write_bytes(b""),
    "foreign": lambda path: pq.write_table(pa.table({"a": [1]}), path),
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "no metadata": lambda path: rewrite(path, lambda table: table.replace_schema_metadata({})),
    "metadata of another kind": meta(lambda _: []),
    "no shapes": meta(lambda meta: {**meta, "shapes": {}}),
    "other shapes": meta(lambda meta: {**meta, "shapes": {name: [7, 7] for name in meta["shapes"]}}),
    "example": column("example", lambda _: "{"),
    "response missing": column("example", lambda _: "{}"),
    "layout": column("layout", lambda _: "null"),
    "layout fields": column("layout", lambda _: "{}"),
    "short values": column("signal:lookback_ratio", lambda values: values[:5]),
    "not a number": column("signal:token_logprob", lambda values: [float("nan"), *values[1:]]),
    "infinite": column("signal:mmd", lambda values: [*values[:-1], float("inf")]),
    "no place": column("number", lambda _: None),
    "no digests": meta(lambda meta: {name: value for name, value in meta.items() if name != "digests"}, False),
    "of a later format": meta(lambda meta: meta | {"format": 3}),
}


@pytest.mark.parametrize("damage", BROKEN_SHARDS)
def test_whatever_is_wrong_in_a_shard_is_told_as_damage(tmp_path, traced, damage):
    write_store(tmp_path / "s", traced)
    BROKEN_SHARDS[damage](tmp_path / "s" / "part-00000.parquet")
    with pytest.raises(InputError, match=r"part-00000\.parquet.*damaged.*extract again"):
        TraceStore(tmp_path / "s").read()


@pytest.mark.parametrize("damage", ["empty", "foreign", "folder", "no metadata"])
def test_going_on_from_a_damaged_shard_is_refused_and_repaired_as_told(tmp_path, traced, damage):
    write_store(tmp_path / "s", traced)
    path = tmp_path / "s" / "part-00000.parquet"
    BROKEN_SHARDS[damage](path)
    with pytest.raises(InputError, match=r"part-00000\.parquet.*damaged.*Remove it"):
        TraceWriter(tmp_path / "s", settings_for(traced))
    path.rmdir() if path.is_dir() else path.unlink()
    assert [item.example.id for item in write_store(tmp_path / "s", traced).read()] == ["r0", "r1", "r2"]


def test_going_on_from_another_models_shard_is_refused(tmp_path, traced):
    write_store(tmp_path / "s", traced)
    meta(lambda meta: {**meta, "fingerprint": {"model": "x"}})(tmp_path / "s" / "part-00000.parquet")
    with pytest.raises(MismatchError, match="another model"):
        TraceWriter(tmp_path / "s", settings_for(traced))


def test_a_missing_shard_is_noticed_and_read_again(tmp_path, traced):
    write_store(tmp_path / "s", traced)
    (tmp_path / "s" / "part-00000.parquet").unlink()
    with pytest.raises(InputError, match="finished with 3 examples and holds 0"):
        TraceStore(tmp_path / "s").read()
    assert len(write_store(tmp_path / "s", traced).read()) == 3


def test_an_example_is_never_there_twice(tmp_path, traced):
    write_store(tmp_path / "s", traced)
    (tmp_path / "s" / "part-00001.parquet").write_bytes((tmp_path / "s" / "part-00000.parquet").read_bytes())
    with pytest.raises(InputError, match=r"part-00001\.parquet.*earlier shard.*'r0'"):
        TraceStore(tmp_path / "s").read()


def test_two_examples_in_one_place_are_refused(tmp_path, traced):
    write_store(tmp_path / "s", traced)
    column("number", lambda _: 1)(tmp_path / "s" / "part-00000.parquet")
    with pytest.raises(InputError, match="two examples have one place"):
        TraceStore(tmp_path / "s").read()


def test_no_flipped_bit_goes_unnoticed(tmp_path, traced):
    store = write_store(tmp_path / "s", traced)
    path = tmp_path / "s" / "part-00000.parquet"
    raw, before = path.read_bytes(), [dict(item.trace) for item in store.read()]
    for place in range(0, len(raw), max(1, len(raw) // 200)):
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 0x10]) + raw[place + 1 :])
        try:
            after = [dict(item.trace) for item in TraceStore(tmp_path / "s").read()]
        except (InputError, MismatchError):
            continue
        for one, other in zip(before, after, strict=True):
            for name in one:
                np.testing.assert_array_equal(one[name], other[name], err_msg=f"byte {place}, {name}")


def test_files_of_other_names_are_no_shards(tmp_path, traced):
    store = write_store(tmp_path / "s", traced)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "s" / "part-mine.parquet")
    assert len(store.read()) == 3


INDEX_FIELDS = ["settings", "signals", "unread", "examples", "fingerprint", "complete"]
UNREAD = [{"outcome": "failed"}, {"message": "m"}, {"outcome": "failed", "message": "m", "number": "a"}]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in INDEX_FIELDS for value in (None, 3.5, "x", [1])),
        *(("unread", [item]) for item in UNREAD),
        ("examples", True),
    ],
)
def test_an_index_of_another_kind_is_refused(tmp_path, traced, name, value):
    write_store(tmp_path / "s", traced)
    path = tmp_path / "s" / "store.json"
    index = json.loads(path.read_text())
    if name == "fingerprint":
        index["settings"][name] = value
    else:
        index[name] = value
    path.write_text(json.dumps(index))
    for opened in (lambda: TraceStore(tmp_path / "s"), lambda: TraceWriter(tmp_path / "s", settings_for(traced))):
        with pytest.raises(InputError, match=r"store\.json is damaged"):
            opened()
