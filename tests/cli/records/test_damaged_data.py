"""Files that hold no records: every command that reads data says why, with exit code 2, and leaves nothing behind."""

from __future__ import annotations

import gzip
import json
import pickle
import random

import pytest
from command_line import run
from labelled import make_examples

LINES = [
    json.dumps({**example.to_dict(), "gold": "1889"}, ensure_ascii=False).encode() for example in make_examples(24)
]
WHOLE = gzip.compress(b"\n".join(LINES))
_draw = random.Random(0)

MODEL = ("--model", "model")
COMMANDS = {
    "score": ("score", "{data}", "-o", "out.jsonl", "--threshold", "1", *MODEL),
    "extract": ("extract", "{data}", "-o", "out", "--detector", "perplexity", *MODEL),
    "train": ("train", "hidden-state", "--train", "{data}", "-o", "out", "-p", "layer=1", *MODEL),
    "train --dev": ("train", "hidden-state", "--train", "good.jsonl", "--dev", "{data}", "-o", "out", *MODEL),
    "evaluate": ("evaluate", "{data}", "-o", "out", "-d", "perplexity", "--folds", "2", "--resamples", "20", *MODEL),
    "evaluate --test": ("evaluate", "good.jsonl", "--test", "{data}", "-o", "out", "-d", "perplexity", *MODEL),
    "transfer": ("transfer", "detector", "--data", "{data}", "-o", "out", "--to", "model"),
    "validate": ("validate", "{data}", "-o", "out.json", "--signal", "token_entropy", "--role", "internal",
                 "--resamples", "20", *MODEL),
    "analyse": ("analyse", "{data}", "-o", "out", "--resamples", "20", *MODEL),
    "label": ("label", "{data}", "-o", "out.jsonl", "--gold-answers", "gold", "--relabel"),
    "audit": ("audit", "{data}"),
    "audit --against": ("audit", "good.jsonl", "--against", "{data}"),
    "convert": ("convert", "{data}", "-o", "out.jsonl"),
    "convert to gzip": ("convert", "{data}", "-o", "out.jsonl.gz"),
}  # fmt: skip
# A name, the content, what is said of it.
DAMAGE = {
    "garbage named gzip": ("d.jsonl.gz", _draw.randbytes(5000), "no gzip, in spite of its name"),
    "little garbage named gzip": ("d.jsonl.gz", b"oops", "begins with b'oops'"),
    "a page named gzip": ("d.jsonl.gz", b"<html>404 Not Found</html>\n", "no gzip, in spite of its name"),
    "gzip cut short": ("d.jsonl.gz", WHOLE[: len(WHOLE) // 2], "Copy the file again"),
    "gzip cut in its head": ("d.jsonl.gz", WHOLE[:5], "Copy the file again"),
    "gzip cut in its checksum": ("d.jsonl", WHOLE[:-3], "gzip that is damaged or cut short"),
    "gzip with altered bytes": ("d.jsonl.gz", WHOLE[:200] + b"\0" * 9 + WHOLE[209:], "gzip that is damaged"),
    "gzip with something behind": ("d.jsonl.gz", WHOLE + b"more", "gzip that is damaged"),
    "binary": ("d.jsonl", b"\x7fELF" + bytes(range(256)) * 20, "is a binary file"),
    "binary in gzip": ("d.jsonl.gz", gzip.compress(b"\x7fELF" + bytes(range(256))), "is a binary file"),
    "UTF-16": ("d.jsonl", b"\n".join(LINES).decode().encode("utf-16"), "iconv -f UTF-16"),
    "pickle": ("d.jsonl", pickle.dumps(["records"]), "is a pickle"),
    "empty": ("d.jsonl", b"", "holds no"),
    "blank": ("d.jsonl", b"\n \n", "holds no"),
    "empty gzip": ("d.jsonl.gz", gzip.compress(b""), "holds no"),
    "empty, named gzip": ("d.jsonl.gz", b"", "holds no"),
    "folder": ("d.jsonl.gz", None, "d.jsonl.gz"),
    "missing": ("d.jsonl.gz", ..., "No such file"),
}


@pytest.fixture(scope="module")
def models(make_tiny, tmp_path_factory):
    """A tiny model, and a detector that was trained on another, which is enough to be refused."""
    place = tmp_path_factory.mktemp("models")
    lm = make_tiny()
    lm.model.save_pretrained(place / "model")
    lm.tokenizer.save_pretrained(place / "model")
    (place / "good.jsonl").write_bytes(b"\n".join(LINES))
    arguments = ("train", "hidden-state", "--train", place / "good.jsonl", "-o", place / "detector", "-p", "layer=1")
    assert run(*arguments, "--model", place / "model").exit_code == 0
    return place


@pytest.fixture
def place(tmp_path, models, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "detector").symlink_to(models / "detector")
    (tmp_path / "good.jsonl").write_bytes(b"\n".join(LINES))
    return tmp_path


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("command", COMMANDS)
def test_refused_with_the_reason(place, command, damage):
    name, content, message = DAMAGE[damage]
    if content is None:
        (place / name).mkdir()
    elif content is not ...:
        (place / name).write_bytes(content)
    before = sorted(path.name for path in place.iterdir())
    done = run(*(item.format(data=name) for item in COMMANDS[command]))  # there is no model: none is loaded
    assert done.exit_code == 2, done.output
    last = done.stderr.splitlines()[-1]
    assert last.startswith("groundscope: ") and repr(name) in last and message in last
    assert done.stdout == "" and sorted(path.name for path in place.iterdir()) == before


# Exit codes where one line of many is not UTF-8, and whether anything is to be found under the name of the output.
ONE_LINE = {
    "score": 3,
    "extract": 3,
    "train": 0,
    "evaluate": 3,
    "validate": 3,
    "analyse": 3,
    "label": 3,
    "audit": 1,
    "convert": 3,
}


@pytest.mark.parametrize("command", ONE_LINE)
def test_one_line_that_is_no_utf8_costs_itself_alone(place, models, caplog, command):
    (place / "model").symlink_to(models / "model")
    bad = LINES[7].replace(b"What", b"caf\xe9")
    (place / "d.jsonl").write_bytes(b"\n".join([*LINES[:7], bad, *LINES[8:]]))
    done = run(*(item.format(data="d.jsonl") for item in COMMANDS[command]))
    assert done.exit_code == ONE_LINE[command], done.output
    said = done.stderr + done.stdout + caplog.text
    assert "UTF-8" in said and any(f"{word} 8" in said for word in ("line", "record", "the first:")), said
    assert any(place.glob("out*")) == (command != "audit")
