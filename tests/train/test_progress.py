import logging

from groundscope.train import progress


def test_away_from_a_terminal_a_line_now_and_then_tells(caplog, monkeypatch):
    clock = iter(range(0, 1000, 25))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    with caplog.at_level(logging.INFO, logger="groundscope"):
        assert list(progress.shown("abcdefg", 9, 2)) == list("abcdefg")
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["4 of 9 records, 37.5 s each", "7 of 9 records, 30.0 s each"]


def test_a_short_reading_says_nothing(caplog):
    with caplog.at_level(logging.INFO, logger="groundscope"):
        assert list(progress.shown(range(100), 100)) == list(range(100))
    assert not caplog.records
