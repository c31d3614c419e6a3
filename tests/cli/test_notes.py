"""What the library reports about long work reaches the person at the terminal."""

from __future__ import annotations

import logging

from groundscope.cli.console import NoteHandler, show_library_notes


def test_library_notes_go_to_standard_error_once(capsys):
    logger = logging.getLogger("groundscope")
    before = list(logger.handlers), logger.level, logger.propagate
    try:
        show_library_notes()
        show_library_notes()
        logging.getLogger("groundscope.lm.loading.embedded").info("Converting %s once ...", "a model")
        out = capsys.readouterr()
        assert out.err == "groundscope: Converting a model once ...\n"
        assert out.out == ""
    finally:
        logger.handlers[:], logger.level, logger.propagate = before
    assert not any(isinstance(handler, NoteHandler) for handler in logger.handlers)
