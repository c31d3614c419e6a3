import errno
import os
import pwd
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from groundscope.errors import InputError, ModelFetchError, PrerequisiteError
from groundscope.lm.loading.cache import (
    cache_dir,
    discard_partial,
    exclusive,
    folder_size,
    format_bytes,
    is_disk_full,
    make_folder,
    replacing,
    require_space,
    storage_errors,
)


@pytest.fixture
def no_variables(monkeypatch):
    for name in ("GROUNDSCOPE_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)


def test_own_variable_comes_first(no_variables, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_dir() == tmp_path / "home" / ".cache" / "groundscope"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "groundscope"
    monkeypatch.setenv("GROUNDSCOPE_CACHE", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own"


def test_home_sign_and_relative_paths(no_variables, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GROUNDSCOPE_CACHE", "~/models")
    assert cache_dir() == tmp_path / "models"
    monkeypatch.setenv("GROUNDSCOPE_CACHE", "models")
    assert cache_dir() == Path.cwd() / "models"


@pytest.mark.parametrize("value", ["", "relative/cache"])
def test_empty_and_relative_xdg_are_ignored(no_variables, monkeypatch, tmp_path, value):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GROUNDSCOPE_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert cache_dir() == tmp_path / ".cache" / "groundscope"


def test_unknown_home_names_the_variable(no_variables, monkeypatch):
    def unknown_user(uid):
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown_user)  # as in a container that runs under any user id
    with pytest.raises(PrerequisiteError, match=r"home folder is unknown.*GROUNDSCOPE_CACHE"):
        cache_dir()
    monkeypatch.setenv("GROUNDSCOPE_CACHE", "~/models")
    with pytest.raises(PrerequisiteError, match="GROUNDSCOPE_CACHE"):
        cache_dir()


def test_folder_below_a_file_is_refused_with_its_path(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "models"):
        with pytest.raises(PrerequisiteError, match="GROUNDSCOPE_CACHE") as caught:
            make_folder(folder)
        assert str(folder) in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_folder_is_refused(tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(PrerequisiteError, match=r"Permission denied.*GROUNDSCOPE_CACHE"):
        make_folder(tmp_path / "models")


def test_space_message_has_both_numbers(tmp_path):
    free = shutil.disk_usage(tmp_path).free
    require_space(tmp_path, 1)
    with pytest.raises(ModelFetchError) as caught:
        require_space(tmp_path, free * 1000)
    assert format_bytes(free * 1000) in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "are left" in str(caught.value)


@pytest.mark.parametrize(("count", "text"), [(0, "0 MB"), (92_871_040, "93 MB"), (1_300_000_000, "1.30 GB")])
def test_bytes_for_people(count, text):
    assert format_bytes(count) == text


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_a_really_full_device_is_reported(tmp_path):
    with (
        pytest.raises(ModelFetchError, match=r"is full; 1\.30 GB are needed") as caught,
        storage_errors(tmp_path, 1_300_000_000),
    ):
        Path("/dev/full").write_bytes(b"x")
    assert str(tmp_path) in str(caught.value)


def test_other_errors_pass_or_are_explained(tmp_path):
    with (
        pytest.raises(ModelFetchError, match=r"cannot be used \(Read-only file system: /x\).*GROUNDSCOPE_CACHE"),
        storage_errors(tmp_path, 1),
    ):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "/x")
    with pytest.raises(InputError, match="mine"), storage_errors(tmp_path, 1):
        raise InputError("mine")
    with pytest.raises(ZeroDivisionError), storage_errors(tmp_path, 1):
        _ = 1 / 0


def test_safetensors_words_for_a_full_disk():
    message = "Error while serializing: I/O error: No space left on device (os error 28)"
    assert is_disk_full(RuntimeError(message))
    assert not is_disk_full(RuntimeError("Error while serializing: I/O error: denied (os error 13)"))


def test_replacing_puts_the_new_folder_in_place(tmp_path):
    target = tmp_path / "target"
    for text in ("first", "second"):
        with replacing(target) as work:
            (work / "new" / "file").write_text(text)
            (work / "scratch").write_text("not kept")
        assert [path.name for path in tmp_path.iterdir()] == ["target"]
        assert [path.name for path in target.iterdir()] == ["file"]
        assert (target / "file").read_text() == text


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_replacing_keeps_the_old_folder_on_any_error(tmp_path, error):
    target = tmp_path / "target"
    target.mkdir()
    (target / "file").write_text("old")
    with pytest.raises(error), replacing(target) as work:
        (work / "new" / "file").write_text("half")
        raise error
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert (target / "file").read_text() == "old"


def test_leftovers_of_a_killed_run_go(tmp_path):
    target = tmp_path / "target"
    assert not discard_partial(target)
    leftover = tmp_path / ".target.partial"
    (leftover / "new").mkdir(parents=True)
    (leftover / "new" / "stale").touch()
    with replacing(target) as work:
        assert not list((work / "new").iterdir())
    assert not list(target.iterdir())
    leftover.mkdir()
    assert discard_partial(target)
    assert not leftover.exists()


def test_files_get_the_usual_mode(tmp_path):
    target = tmp_path / "target"
    (tmp_path / "usual").touch()
    with replacing(target) as work:
        (work / "new" / "private").touch(mode=0o600)
    assert stat.S_IMODE((target / "private").stat().st_mode) == stat.S_IMODE((tmp_path / "usual").stat().st_mode)


def test_folder_size_counts_files_below(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"12345")
    (tmp_path / "file").write_bytes(b"12")
    assert folder_size(tmp_path) == 7
    assert folder_size(tmp_path / "absent") == 0


def test_lock_waits_for_another_process_and_says_so(tmp_path):
    lock = tmp_path / ".x.lock"
    code = (
        "import sys, time; from pathlib import Path; from groundscope.lm.loading.cache import exclusive\n"
        "with exclusive(Path(sys.argv[1]), print):\n"
        "    print('held', flush=True); time.sleep(1.0)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(lock)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        lines, start = [], time.monotonic()
        with exclusive(lock, lines.append):
            waited = time.monotonic() - start
        assert holder.wait() == 0
    assert waited > 0.5
    assert len(lines) == 1
    assert "Waiting for another process" in lines[0]
    assert str(lock) in lines[0]


def test_lock_of_a_killed_process_is_free(tmp_path):
    lock = tmp_path / ".x.lock"
    code = (
        "import os, sys; from pathlib import Path; from groundscope.lm.loading.cache import exclusive\n"
        "with exclusive(Path(sys.argv[1]), print):\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(lock)], check=False).returncode == -9
    lines = []
    with exclusive(lock, lines.append):
        pass
    assert lines == []


def test_a_folder_name_too_long_names_the_variable(no_variables, monkeypatch):
    monkeypatch.setenv("GROUNDSCOPE_CACHE", "/tmp/" + "x" * 300)
    with pytest.raises(PrerequisiteError, match=r"name too long.*GROUNDSCOPE_CACHE"):
        cache_dir()
