"""Writer: stop anywhere, go on, end with the same file; never a partial file under the final name."""

import json
import multiprocessing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from written import SETTINGS, verdict

from groundscope.errors import InputError, PrerequisiteError
from groundscope.outputs.runs import (
    finished_records,
    partial_path,
    recorded_run,
    recorded_summary,
    run_path,
    run_state,
    summary_if_complete,
)
from groundscope.outputs.verdicts import VerdictWriter, read_verdicts

FULL = Path("/dev/full")


def test_interrupted_run_goes_on(tmp_path):
    path = tmp_path / "v.jsonl"
    with pytest.raises(KeyboardInterrupt), VerdictWriter(path, SETTINGS) as writer:
        writer.write(verdict("a"))
        raise KeyboardInterrupt
    assert not path.exists() and run_state(path, SETTINGS) == "partial"
    with VerdictWriter(path, SETTINGS) as writer:
        assert list(writer.finished) == ["a"]
        assert writer.finished["a"].outcome == "scored" and writer.finished["a"].flagged is True
        writer.write(verdict("b"))
        writer.finish({})
    assert [v.id for v in read_verdicts(path)] == ["a", "b"]
    assert run_state(path, SETTINGS) == "complete"
    with pytest.raises(InputError, match="complete already"), VerdictWriter(path, SETTINGS):
        pass


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_resuming_from_a_crash_at_any_byte_loses_no_whole_record(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("run") / "v.jsonl"
    names = ["a", "b", "c"]
    with VerdictWriter(path, SETTINGS) as writer:
        for name in names:
            writer.write(verdict(name))
    partial = partial_path(path)
    whole = partial.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    partial.write_bytes(whole[:cut])
    with VerdictWriter(path, SETTINGS) as writer:
        assert list(writer.finished) == names[: whole[:cut].count(b"\n")]
        for name in names[len(writer.finished) :]:
            writer.write(verdict(name))
        writer.finish({})
    assert path.read_bytes() == whole


def test_long_unfinished_line_is_cut(tmp_path):
    path = tmp_path / "v.jsonl.partial"
    path.write_bytes(b'{"id": "a", "outcome": "scored"}\n' + b"x" * 200_000)
    assert list(finished_records(path)) == ["a"]
    assert path.read_bytes().endswith(b"}\n")
    assert finished_records(tmp_path / "missing") == {}


@pytest.mark.parametrize(
    "line", [b"not json\n", b"[1]\n", b'{"id": "x"}\n', b'{"outcome": "scored"}\n', b'{"id": 3, "outcome": "scored"}\n']
)
def test_damage_inside_the_file_is_not_skipped(tmp_path, line):
    path = tmp_path / "v.jsonl.partial"
    path.write_bytes(line + b'{"id": "b", "outcome": "scored"}\n')
    with pytest.raises(InputError, match="line 1"):
        finished_records(path)


@pytest.mark.parametrize(
    "damage", [{"outcome": ["x"]}, {"outcome": None}, {"flagged": "no"}, {"spans": 3}, {"tokens": None}, {"score": "x"}]
)
def test_a_damaged_record_is_never_carried_into_the_output(tmp_path, damage):
    path = tmp_path / "v.jsonl"
    with VerdictWriter(path, SETTINGS) as writer:
        writer.write(verdict("a"))
    record = json.loads(partial_path(path).read_text(encoding="utf-8")) | damage
    partial_path(path).write_text(json.dumps(record) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"line 1.*--overwrite"), VerdictWriter(path, SETTINGS):
        pass
    assert not path.exists()


def test_an_output_that_changed_is_not_called_complete(tmp_path):
    path = tmp_path / "v.jsonl"
    with VerdictWriter(path, SETTINGS) as writer:
        writer.write(verdict("a"))
        writer.write(verdict("b"))
        writer.finish({})
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(InputError, match=r"has changed since it was finished.*--overwrite"):
        run_state(path, SETTINGS)


@pytest.mark.parametrize("side", [{}, {"summary": 3}, {"summary": {}}, {"summary": None}])
def test_a_damaged_summary_is_said(tmp_path, side):
    path = tmp_path / "v.jsonl"
    run_path(path).write_text(json.dumps({"settings": SETTINGS} | side))
    with pytest.raises(InputError, match=r"v\.jsonl\.run\.json is damaged.*--overwrite"):
        recorded_summary(path, lambda summary: summary["flagged"])


def test_other_settings_are_refused_by_name(tmp_path):
    path = tmp_path / "v.jsonl"
    with VerdictWriter(path, SETTINGS) as writer:
        writer.write(verdict("a"))
    before = partial_path(path).read_bytes()
    other = SETTINGS | {"detector": "lumina"}
    with pytest.raises(InputError, match=r"detector was 'contrast', is 'lumina'.*--overwrite"):
        run_state(path, other)
    with pytest.raises(InputError, match="detector"), VerdictWriter(path, other):
        pass
    assert partial_path(path).read_bytes() == before
    assert recorded_run(path)["settings"] == SETTINGS
    with VerdictWriter(path, other, overwrite=True) as writer:
        assert writer.finished == {}
        writer.finish({})
    assert path.read_bytes() == b""


def test_file_of_unknown_origin_is_never_replaced(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(InputError, match="tells how it was made"), VerdictWriter(path, SETTINGS):
        pass
    run_path(path).write_text("{damaged")
    with pytest.raises(InputError, match="tells how it was made"):
        run_state(path, SETTINGS)
    assert path.read_text() == "mine"


def test_rendered_output_replaces_the_lines(tmp_path):
    path = tmp_path / "v.txt"

    def render(partial, place):
        place.write_text(",".join(v.id for v in read_verdicts(partial)))

    with VerdictWriter(path, SETTINGS) as writer:
        writer.write(verdict("a"))
        writer.write(verdict("b"))
        writer.finish({}, render)
    assert path.read_text() == "a,b" and run_state(path, SETTINGS) == "complete"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["v.txt", "v.txt.run.json"]
    path.write_text("a,b,mine")
    with pytest.raises(InputError, match="has changed since it was finished"):
        run_state(path, SETTINGS)


def test_failing_render_keeps_the_lines(tmp_path):
    path = tmp_path / "v.txt"
    with pytest.raises(ZeroDivisionError), VerdictWriter(path, SETTINGS) as writer:
        writer.write(verdict("a"))
        writer.finish({}, lambda partial, place: 1 / 0)
    assert not path.exists() and run_state(path, SETTINGS) == "partial"
    assert list(finished_records(partial_path(path))) == ["a"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["v.txt.partial", "v.txt.run.json"]


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_a_disk_that_fills_while_rendering_keeps_the_lines(tmp_path):
    path = tmp_path / "v.txt"
    with VerdictWriter(path, SETTINGS) as writer:
        writer.write(verdict("a"))
        with pytest.raises(PrerequisiteError, match=r"No space left.*v\.txt\.partial'; make room and run"):
            writer.finish({}, lambda partial, place: FULL.write_text(partial.read_text(encoding="utf-8")))
    assert not path.exists() and list(finished_records(partial_path(path))) == ["a"]


def test_only_a_finished_run_has_a_summary(tmp_path):
    path = tmp_path / "v.jsonl"
    assert summary_if_complete(path, SETTINGS, dict) is None
    with VerdictWriter(path, SETTINGS) as writer:
        assert summary_if_complete(path, SETTINGS, dict) is None
        writer.finish({"flagged": 0})
    assert summary_if_complete(path, SETTINGS, dict) == {"flagged": 0}
    with pytest.raises(InputError, match="seed was 0, is 1"):
        summary_if_complete(path, SETTINGS | {"seed": 1}, dict)


def _try_to_write(path, answers):
    try:
        with VerdictWriter(path, SETTINGS):
            answers.put("written")
    except InputError as exc:
        answers.put(str(exc))


def test_second_process_is_refused(tmp_path):
    path = tmp_path / "v.jsonl"
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    with VerdictWriter(path, SETTINGS) as writer:
        writer.write(verdict("a"))
        other = context.Process(target=_try_to_write, args=(path, answers))
        other.start()
        other.join(60)
        assert "Another run is writing" in answers.get(timeout=5)
        writer.finish({})
    assert [v.id for v in read_verdicts(path)] == ["a"]


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_full_disk_is_one_clear_error_and_keeps_what_was_written(tmp_path):
    path = tmp_path / "v.jsonl"
    with VerdictWriter(path, SETTINGS) as writer:
        writer.write(verdict("a"))
        kept = writer._stream
        with FULL.open("ab") as full:
            writer._stream = full
            with pytest.raises(PrerequisiteError, match=r"No space left.*run the same command again"):
                writer.write(verdict("b"))
        kept.close()
    assert list(finished_records(partial_path(path))) == ["a"]


def test_places_where_no_file_can_be(tmp_path):
    with pytest.raises(InputError, match="does not exist"), VerdictWriter(tmp_path / "no" / "v", SETTINGS):
        pass
    assert not (tmp_path / "no").exists()
    with pytest.raises(InputError, match="folder"), VerdictWriter(tmp_path, SETTINGS):
        pass


def test_a_folder_in_the_place_of_the_lock_is_named_and_kept(tmp_path):
    lock = tmp_path / "v.jsonl.lock"
    lock.mkdir()
    with (
        pytest.raises(PrerequisiteError, match=r"v\.jsonl\.lock' cannot be made"),
        VerdictWriter(tmp_path / "v.jsonl", SETTINGS),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["v.jsonl.lock"]


@pytest.mark.parametrize("length", [250, 300])
def test_a_name_that_leaves_no_room_for_the_side_files_is_refused(tmp_path, length):
    with pytest.raises(InputError, match="name too long"), VerdictWriter(tmp_path / ("x" * length), SETTINGS):
        pass
    assert not list(tmp_path.iterdir())
