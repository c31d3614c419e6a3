"""Readers: one bad line costs one record, nothing is lost or renamed silently."""

import gzip
import io
import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groundscope.data.jsonl import BadRecord, count_lines, file_sha256, read_records
from groundscope.errors import InputError
from groundscope.example import Example, Label


def write(path, *lines):
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    return path


def record(**fields):
    return json.dumps({"response": "It fell.", "context": "It stood."} | fields, ensure_ascii=False)


def test_fields_arrive(tmp_path):
    path = write(
        tmp_path / "a.jsonl",
        record(id="a", question="Q?", context=["one", "two"], labels=[{"start": 3, "end": 7, "type": "x"}]),
    )
    (example,) = read_records(path)
    assert example.passages == ("one", "two")
    assert example.question == "Q?"
    assert example.labels == (Label(3, 7, "x"),)


def test_bad_lines_keep_their_numbers_and_the_rest_is_read(tmp_path):
    path = write(
        tmp_path / "a.jsonl",
        record(id="ok-1"),
        "",
        '{"response": "cut',
        record(id="ok-4", response="東京は🎉"),
        b'{"id": "latin", "response": "caf\xe9"}',
        '{"id": "no-response", "context": "x"}',
        record(id="outside", labels=[{"start": 2, "end": 99}]),
        '"a string"',
        '{"response": "lone \\ud800 half"}',
        "   ",
        record(),
    )
    items = list(read_records(path))
    good = {item.id: item for item in items if isinstance(item, Example)}
    bad = {item.line: item for item in items if isinstance(item, BadRecord)}
    assert list(good) == ["ok-1", "ok-4", "line-11"]
    assert good["ok-4"].response == "東京は🎉"
    assert sorted(bad) == [3, 5, 6, 7, 8, 9]
    assert "JSON" in bad[3].error and bad[3].id is None
    assert "UTF-8" in bad[5].error and "byte 32" in bad[5].error
    assert "'response'" in bad[6].error and bad[6].id == "no-response"
    assert "99" in bad[7].error and bad[7].id == "outside"
    assert "surrogate" in bad[9].error


def test_later_duplicate_is_bad_and_names_both_lines(tmp_path):
    path = write(
        tmp_path / "a.jsonl",
        record(id="x", response="first"),
        record(id="y"),
        record(id="x", response="second"),
    )
    items = list(read_records(path))
    assert [item.id for item in items[:2]] == ["x", "y"]
    assert items[0].response == "first"
    assert items[2] == BadRecord(3, items[2].error, "x")
    assert "line 1" in items[2].error


def test_made_up_id_does_not_hide_a_given_one(tmp_path):
    items = list(read_records(write(tmp_path / "a.jsonl", record(id="line-2"), record(response="other"))))
    assert isinstance(items[1], BadRecord) and "'line-2'" in items[1].error


def test_bad_record_does_not_claim_its_id(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"id": "x"}', record(id="x"))
    assert [type(item) for item in read_records(path)] == [BadRecord, Example]


def test_number_and_string_ids_are_the_same_id(tmp_path):
    path = write(tmp_path / "a.jsonl", record(id=7), record(id="7"))
    first, second = read_records(path)
    assert first.id == "7" and isinstance(second, BadRecord)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a"])
@pytest.mark.parametrize("compress", [False, True])
def test_gzip_is_known_by_content(tmp_path, name, compress):
    raw = (record(id="a") + "\n" + record(id="b") + "\n").encode()
    (tmp_path / name).write_bytes(gzip.compress(raw) if compress else raw)
    assert [item.id for item in read_records(tmp_path / name)] == ["a", "b"]
    assert count_lines(tmp_path / name) == 2


def test_damaged_gzip_gives_what_it_can_and_says_so(tmp_path):
    lines = [record(id=str(i), response=f"{i * 7919 % 1000003} " * 5) for i in range(3000)]
    whole = gzip.compress("\n".join(lines).encode())
    (tmp_path / "a.gz").write_bytes(whole[: len(whole) // 2])
    *good, last = read_records(tmp_path / "a.gz")
    assert isinstance(last, BadRecord) and "damaged" in last.error
    assert len(good) > 500
    assert [item.id for item in good] == [str(i) for i in range(len(good))]
    assert last.line == len(good) + 1


def test_a_wrong_checksum_says_that_earlier_records_may_be_altered(tmp_path):
    whole = bytearray(gzip.compress((record(id="a") + "\n").encode()))
    whole[-8] ^= 1  # the CRC, which is known to be wrong only after the record was read
    (tmp_path / "a.gz").write_bytes(whole)
    first, last = read_records(tmp_path / "a.gz")
    assert first.id == "a"
    assert isinstance(last, BadRecord) and "records read before may be altered" in last.error
    (tmp_path / "a.gz").write_bytes(whole[:-8])  # cut short: what was read is right
    *_, last = read_records(tmp_path / "a.gz")
    assert isinstance(last, BadRecord) and "damaged" in last.error and "altered" not in last.error


def test_messages_name_the_source_of_a_copy(tmp_path):
    with pytest.raises(InputError, match=r"'/dev/fd/63' holds a JSON array.*/dev/fd/63 > records"):
        list(read_records(write(tmp_path / "copy", "[]"), "/dev/fd/63"))


def test_byte_order_mark_and_windows_line_ends(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + record(id="a").encode() + b"\r\n" + record(id="b").encode() + b"\r\n")
    assert [item.id for item in read_records(path)] == ["a", "b"]


def test_unicode_line_separators_do_not_split_records(tmp_path):
    path = write(tmp_path / "a.jsonl", record(id="a", response="one\u2028two\u0085three"), record(id="b"))
    first, second = read_records(path)
    assert first.response == "one\u2028two\u0085three" and second.id == "b"


def test_json_documents_are_refused_with_advice(tmp_path):
    for text in (json.dumps([{"response": "x"}]), json.dumps([{"response": "x"}], indent=1)):
        with pytest.raises(InputError, match=r"JSON array.*jq -c '\.\[\]'"):
            list(read_records(write(tmp_path / "a.json", "", text)))
    with pytest.raises(InputError, match="spread over several lines"):
        list(read_records(write(tmp_path / "b.json", json.dumps({"response": "x"}, indent=1))))


def test_deep_nesting_is_one_bad_line(tmp_path):
    deep = '{"response": "x", "extra": ' + "[" * 200_000 + "]" * 200_000 + "}"
    first, second = read_records(write(tmp_path / "a.jsonl", deep, record(id="b")))
    assert isinstance(first, BadRecord) and first.line == 1
    assert second.id == "b"


def test_unreadable_files(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        list(read_records(tmp_path / "missing.jsonl"))
    with pytest.raises(InputError, match="directory"):
        list(read_records(tmp_path))
    assert list(read_records(write(tmp_path / "empty.jsonl", "", " "))) == []


def test_standard_input(monkeypatch):
    raw = gzip.compress((record(id="a") + "\n").encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(raw))))
    assert [item.id for item in read_records("-")] == ["a"]


def test_sha256_is_of_the_bytes_on_disk(tmp_path):
    path = write(tmp_path / "a", b"abc")
    assert file_sha256(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(texts, st.lists(texts, max_size=3), texts), max_size=6),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_what_is_written_is_read(tmp_path_factory, rows, compress, mark, data):
    examples = [
        Example(question, passages, response, id=f"r{i}") for i, (question, passages, response) in enumerate(rows)
    ]
    lines = [json.dumps(e.to_dict(), ensure_ascii=data.draw(st.booleans())).encode() for e in examples]
    raw = (b"\xef\xbb\xbf" if mark else b"") + b"\n\n".join(lines)
    path = tmp_path_factory.mktemp("jsonl") / "a"
    path.write_bytes(gzip.compress(raw) if compress else raw)
    assert list(read_records(path)) == examples
    assert count_lines(path) == len(examples)


@pytest.mark.parametrize("value", ["[1]", "{}", "true", "3.0", "NaN"])
def test_an_id_of_another_kind_is_a_bad_record_without_one(tmp_path, value):
    path = write(tmp_path / "a.jsonl", f'{{"id": {value}, "response": "r"}}', record(id=3))
    bad, good = read_records(path)
    assert bad.id is None and "'id' must be a string or a whole number" in bad.error
    assert good.id == "3"
