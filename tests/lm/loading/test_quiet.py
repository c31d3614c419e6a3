"""Loading what is on this machine draws no bars, and leaves the switches of other libraries as they were."""

from __future__ import annotations

import pytest

import groundscope as gs
from groundscope.lm.loading.quiet import without_bars


def state():
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled
    from transformers.utils import logging

    return logging.is_progress_bar_enabled(), are_progress_bars_disabled()


@pytest.mark.parametrize("enabled", [True, False])
def test_a_local_model_loads_without_a_word(make_tiny, tmp_path, capfd, enabled):
    from transformers.utils import logging

    lm = make_tiny()
    lm.model.save_pretrained(tmp_path)
    lm.tokenizer.save_pretrained(tmp_path)
    before = logging.is_progress_bar_enabled()
    (logging.enable_progress_bar if enabled else logging.disable_progress_bar)()
    try:
        capfd.readouterr()
        gs.LanguageModel.from_pretrained(tmp_path)
        assert capfd.readouterr().err == "" and state()[0] is enabled
    finally:
        (logging.enable_progress_bar if before else logging.disable_progress_bar)()


def test_an_error_leaves_them_too():
    before = state()
    with pytest.raises(KeyError), without_bars():
        assert state()[0] is False
        raise KeyError
    assert state() == before
