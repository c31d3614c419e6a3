"""JSON objects from lines and arrays."""

import gzip
import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groundscope.data.jsonl import BadRecord
from groundscope.data.loaders import objects
from groundscope.data.loaders.objects import first_object, flag_of, read_objects
from groundscope.errors import InputError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def read(tmp_path, content, name="data.json"):
    path = tmp_path / name
    path.write_bytes(content)
    return list(read_objects(path))


@settings(max_examples=60, deadline=None)
@given(
    records=st.lists(st.dictionaries(st.text(max_size=5), JSON, max_size=4), max_size=8),
    indent=st.sampled_from([None, 2]),
)
def test_an_array_and_lines_hold_the_same(tmp_path_factory, records, indent):
    path = tmp_path_factory.mktemp("objects") / "data"
    path.write_text(json.dumps(records, ensure_ascii=False, indent=indent), encoding="utf-8")
    assert list(read_objects(path)) == list(enumerate(records, start=1))
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, records)).encode()))
    assert list(read_objects(path)) == list(enumerate(records, start=1))


def test_an_array_is_read_block_by_block(tmp_path, monkeypatch):
    monkeypatch.setattr(objects, "_BLOCK", 3)
    records = [{"text": "東京🎉" * 50, "n": n} for n in range(7)]
    assert read(tmp_path, json.dumps(records, ensure_ascii=False).encode()) == list(enumerate(records, start=1))


def test_an_array_is_lazy(tmp_path):
    path = tmp_path / "data.json"
    path.write_text("[" + json.dumps({"a": "x" * 100_000}) + ", " + "{" * 10)
    items = read_objects(path)
    assert next(items)[1] == {"a": "x" * 100_000}
    assert isinstance(next(items)[1], BadRecord)


def test_lines_are_numbered_as_in_the_file(tmp_path):
    found = read(tmp_path, b'\n\n{"a": 1}\n\nnot json\n{"a": 2}\n[1]\n')
    assert [number for number, _ in found] == [3, 5, 6, 7]
    assert found[0][1] == {"a": 1} and found[2][1] == {"a": 2}
    assert "Not valid JSON" in found[1][1].error and "must be a JSON object. Got list" in found[3][1].error


def test_an_array_cut_short_yields_what_stands_before(tmp_path):
    found = read(tmp_path, b'[{"a": 1}, {"a": 2}, {"a": ')
    assert [value for _, value in found[:2]] == [{"a": 1}, {"a": 2}]
    assert found[2][0] == 3 and "Nothing after this item" in found[2][1].error


def test_an_item_that_is_no_object_costs_only_itself(tmp_path):
    found = [value for _, value in read(tmp_path, b'[{"a": 1}, "text", null, {"a": 2}]')]
    assert found[0] == {"a": 1} and found[3] == {"a": 2}
    assert all(isinstance(value, BadRecord) for value in found[1:3])


def test_damaged_bytes_are_reported(tmp_path):
    found = read(tmp_path, b'[{"a": "\xff"}, {"a": "caf\xc3\xa9"}]')
    assert "Not valid UTF-8" in found[0][1].error and found[1][1] == {"a": "café"}
    assert "Not valid UTF-8" in read(tmp_path, b'{"a": "\xff"}\n')[0][1].error
    cut = gzip.compress(json.dumps([{"a": "x" * 5000}]).encode())[:-20]
    assert isinstance(read(tmp_path, cut)[-1][1], BadRecord)


def test_a_byte_order_mark_is_skipped(tmp_path):
    assert read(tmp_path, b'\xef\xbb\xbf{"a": 1}\n') == [(1, {"a": 1})]
    assert read(tmp_path, b'\xef\xbb\xbf[{"a": 1}]') == [(1, {"a": 1})]


def test_deep_nesting_is_no_crash(tmp_path):
    assert isinstance(read(tmp_path, b"[" * 200_000)[0][1], BadRecord)


def test_a_pickle_is_refused_unread(tmp_path):
    with pytest.raises(InputError, match="is a pickle"):
        read(tmp_path, pickle.dumps([{"a": 1}]))


def test_first_object_looks_past_bad_records(tmp_path):
    path = tmp_path / "data"
    path.write_text('oops\n{"a": 1}\n')
    assert first_object(path) == {"a": 1}
    path.write_text("")
    assert first_object(path) is None


@pytest.mark.parametrize("value", [True, 1, "yes", " Hallucinated "])
def test_flags_that_say_yes(value):
    assert flag_of(value) is True


@pytest.mark.parametrize("value", [False, 0, "No", "non-hallucinated"])
def test_flags_that_say_no(value):
    assert flag_of(value) is False


@pytest.mark.parametrize("value", ["maybe", 2, None, 0.0, []])
def test_other_flags_are_refused(value):
    with pytest.raises(InputError, match="must be yes or no"):
        flag_of(value)
