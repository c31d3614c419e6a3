from __future__ import annotations

import base64
import builtins
import html
import importlib.util
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from sample_evaluation import HOSTILE, sample

from groundscope.errors import InputError
from groundscope.report.evaluation.folder import REPORT, read_results, write_report
from groundscope.report.evaluation.html import render_evaluation
from groundscope.report.evaluation.markdown import render_markdown
from groundscope.report.evaluation.plots import draw
from groundscope.report.evaluation.tables import plain, show, tables
from groundscope.report.evaluation.terminal import format_evaluation


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("reports") / "inner" / "report"
    assert write_report(sample(), place) == ""
    return place


def test_the_folder_holds_everything_and_nothing_else(folder):
    assert sorted(path.name for path in folder.iterdir()) == ["plots", "report.html", "report.md", "results.json"]
    assert [path.name for path in folder.parent.iterdir()] == ["report"]
    assert read_results(folder) == sample()
    assert {path.stem for path in (folder / "plots").iterdir()} == {
        *("roc-response", "pr-response", "densities-response", "calibration-response"),
        *("head-weights", "layer-profile", "cross-response", "external-internal"),
    }


def test_pictures_are_well_formed_and_hold_no_markup_of_strangers(folder):
    for path in (folder / "plots").iterdir():
        ElementTree.fromstring(path.read_text())
        assert "<script" not in path.read_text()


def test_pictures_are_the_same_every_time():
    assert [plot.svg for plot in draw(sample())] == [plot.svg for plot in draw(sample())]


def test_the_page_loads_nothing_and_escapes_names(folder):
    page = (folder / "report.html").read_text()
    assert "<script" not in page and "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\x1b" not in page and r"\x1b[31m" in page
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)
    assert "default-src 'none'" in html.unescape(page) and "img-src data:" in page
    pictures = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert len(pictures) == 8
    assert base64.b64decode(pictures[0]).decode() in {path.read_text() for path in (folder / "plots").iterdir()}


def test_a_control_that_beats_a_method_is_said_plainly(folder):
    for text in ((folder / "report.md").read_text(), (folder / "report.html").read_text(), format_evaluation(sample())):
        assert "word novelty clearly beats it" in text.replace("\\", "")
    main = next(table for table in tables(sample()) if table.title == "Response level")
    assert [cells[0] for cells in main.rows] == ["word novelty", "probe"]  # best first, whatever it is
    assert main.controls == (0,)
    assert dict(zip(main.columns, main.rows[1], strict=True))["controls that beat it"] == "word novelty"


def test_markdown_tables_keep_their_columns(folder):
    text = (folder / "report.md").read_text()
    for block in re.findall(r"(?:^\|.*\|\n)+", text, flags=re.M):
        widths = {len(re.split(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1
    assert "<script" not in text.replace("\\<script", "")


def test_the_terminal_is_not_drowned_in_findings():
    few, many = (replace(sample(), findings=tuple(f"finding {i}." for i in range(count))) for count in (8, 20))
    assert "finding 7." in format_evaluation(few) and "more in the report" not in format_evaluation(few)
    text = format_evaluation(many)
    assert "finding 7." in text and "finding 8." not in text and "... and 12 more in the report" in text


def test_rows_without_figures_say_why():
    text = format_evaluation(sample())
    assert "it said <script>" in text and "\x1b" not in text
    remarks = next(table for table in tables(sample()) if table.title == "Remarks")
    assert remarks.rows == ((HOSTILE, f"it said {HOSTILE}"),)


def test_every_table_is_rectangular():
    for table in tables(sample()):
        assert {len(cells) for cells in table.rows} == {len(table.columns)}, table.title


def test_the_flattering_figure_is_named_as_such():
    (table,) = [table for table in tables(sample()) if table.title == "Response level"]
    assert "best F1 on test (flatters)" in table.columns


def test_without_matplotlib_the_rest_is_written(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "matplotlib" else find(name, *a))
    bring = builtins.__import__

    def refuse(name, *arguments, **more):
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return bring(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    missing = write_report(sample(), tmp_path / "report")
    assert "pip install 'groundscope[plots]'" in missing
    assert sorted(path.name for path in (tmp_path / "report").iterdir()) == ["report.html", "report.md", "results.json"]
    for name in ("report.html", "report.md"):
        assert "groundscope" in (tmp_path / "report" / name).read_text()
        assert "Plots need matplotlib" in (tmp_path / "report" / name).read_text()


def test_places_that_are_refused(folder, tmp_path):
    with pytest.raises(InputError, match="--overwrite"):
        REPORT.check(folder)
    REPORT.check(folder, overwrite=True)
    (tmp_path / "notes.txt").write_text("mine")
    for place in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(InputError, match="is no report"):
            write_report(sample(), place, overwrite=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_failed_write_leaves_the_earlier_report(folder, monkeypatch):
    before = (folder / "report.html").read_text()
    monkeypatch.setattr("groundscope.report.evaluation.folder.render_evaluation", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(sample(), folder, overwrite=True)
    assert (folder / "report.html").read_text() == before
    assert [path.name for path in folder.parent.iterdir()] == ["report"]


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 9}'])
def test_damaged_results_are_refused(tmp_path, text):
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(InputError):
        read_results(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        read_results(tmp_path / "none")


def test_numbers():
    assert [plain(value) for value in (0.5, -0.25, 1.0, 0.0, None)] == [".500", "-.250", "1.000", ".000", "–"]
    assert show(sample().rows[0].measured[0].auroc) == ".600 [.500, .650]"
    assert show(None) == "–"


def test_renderers_need_no_plots():
    assert "<img" not in render_evaluation(sample())
    assert "![" not in render_markdown(sample())
