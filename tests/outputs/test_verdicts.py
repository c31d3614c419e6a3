"""Verdicts are written as plain lines and come back whole."""

import json

import pytest
from written import SETTINGS, verdict

from groundscope.errors import InputError
from groundscope.outputs.runs import partial_path, recorded_run
from groundscope.outputs.verdicts import VerdictWriter, read_verdicts


def test_finished_file_is_plain_verdict_lines(tmp_path):
    path = tmp_path / "v.jsonl"
    with VerdictWriter(path, SETTINGS, include_context=True) as writer:
        assert not path.exists()
        writer.write(verdict("a"))
        assert list(read_verdicts(partial_path(path))) == [verdict("a")]  # readable while the run goes on
        writer.write(verdict("b", flagged=False))
        writer.finish({"flagged": 1})
    assert list(read_verdicts(path)) == [verdict("a"), verdict("b", flagged=False)]
    assert "東京" in path.read_text(encoding="utf-8")
    assert recorded_run(path) == {"settings": SETTINGS, "summary": {"flagged": 1}, "bytes": path.stat().st_size}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["v.jsonl", "v.jsonl.run.json"]


def test_context_is_left_out_unless_asked_for(tmp_path):
    path = tmp_path / "v.jsonl"
    with VerdictWriter(path, SETTINGS) as writer:
        writer.write(verdict("a"))
        writer.finish({})
    assert not {"question", "passages"} & set(json.loads(path.read_text()))
    (back,) = read_verdicts(path)
    assert back.spans == verdict("a").spans


def test_verdict_without_id_is_refused(tmp_path):
    with VerdictWriter(tmp_path / "v", SETTINGS) as writer, pytest.raises(InputError, match="id"):
        writer.write(verdict(None))
