"""A hub that cannot be reached is asked once, and said so in one line; what its cache holds still loads."""

from __future__ import annotations

import http.server
import os
import shutil
import subprocess
import sys
import threading
import time

import pytest

from groundscope import LanguageModel
from groundscope.detectors.saved.folder import load_detector
from groundscope.errors import PrerequisiteError
from groundscope.lm.companions.embedding import Embedder
from groundscope.lm.companions.pairs import PairClassifier
from groundscope.lm.loading.hub import why_unreachable

# Nobody listens at port 9, and connecting to it is refused at once.
NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def no_network(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", NOBODY)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"waited {seconds} s to try again"))


@pytest.fixture
def answering(monkeypatch):
    """A server that answers everything with an error."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_error(500)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield
    server.shutdown()
    server.server_close()


def test_an_error_of_the_hub_is_an_answer(answering):
    assert why_unreachable() is None


def test_nobody_there(no_network):
    assert why_unreachable().startswith(f"{NOBODY} does not answer (")


def test_a_user_who_wants_no_network(monkeypatch, answering):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert why_unreachable() == "HF_HUB_OFFLINE is set"


@pytest.mark.parametrize(
    "load",
    [
        lambda: LanguageModel.from_pretrained("nobody/nothing"),
        lambda: load_detector("nobody/nothing"),
        lambda: PairClassifier.load("nobody/nothing", "entailment", "cpu"),
        lambda: Embedder.load("nobody/nothing"),
    ],
    ids=["model", "detector", "classifier", "embedder"],
)
def test_what_is_not_in_the_cache_is_refused_at_once(no_network, load, capfd):
    with pytest.raises(PrerequisiteError, match=rf"'nobody/nothing'.*{NOBODY} does not answer") as caught:
        load()
    assert "\n" not in str(caught.value) and ".." not in str(caught.value)
    assert "Retrying" not in "".join(capfd.readouterr())


@pytest.mark.slow
def test_what_is_in_the_cache_loads_without_a_network(tmp_path, make_tiny):
    lm = make_tiny()
    snapshot = tmp_path / "hub" / "models--some--body" / "snapshots" / "0123"
    lm.model.save_pretrained(snapshot)
    lm.tokenizer.save_pretrained(snapshot)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0123")
    probe = "import groundscope as gs; print(gs.LanguageModel.from_pretrained('some/body').max_length)"
    environment = {**os.environ, "HF_HOME": str(tmp_path), "HF_ENDPOINT": NOBODY}
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", probe], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.strip() == str(lm.max_length), done.stderr
    assert "Retrying" not in done.stderr and time.monotonic() - start < 40
    shutil.rmtree(snapshot)
