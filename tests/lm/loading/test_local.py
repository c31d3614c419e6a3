"""A local model is known by its files; any other name says nothing."""

import os

from groundscope.lm.loading.local import local_state


def test_files_are_the_state_of_a_model(tmp_path):
    assert local_state(None) is None and local_state("") is None and local_state("owner/name") is None
    assert local_state(str(tmp_path)) is None
    file = tmp_path / "model.gguf"
    file.write_bytes(b"a")
    state, alone = local_state(str(tmp_path)), local_state(str(file))
    assert state == alone == local_state(str(file))
    os.utime(file, ns=(1, 1))
    assert local_state(str(tmp_path)) not in (None, state)
