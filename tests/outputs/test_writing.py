"""Whole or not at all, whatever happens in between."""

import os
from pathlib import Path

import pytest

from groundscope.errors import PrerequisiteError
from groundscope.outputs.writing import replace_text, replaced, replaced_folder


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_gets_its_name_when_it_is_whole(tmp_path):
    replace_text(tmp_path / "a", "old")
    with pytest.raises(ZeroDivisionError), replaced(tmp_path / "a") as place:
        place.write_text("half")
        assert (tmp_path / "a").read_text() == "old"
        raise ZeroDivisionError
    assert (tmp_path / "a").read_text() == "old" and names(tmp_path) == ["a"]
    with replaced(tmp_path / "a") as place:
        place.write_text("new")
    assert (tmp_path / "a").read_text() == "new" and names(tmp_path) == ["a"]


def write(folder, text):
    with replaced_folder(folder) as place:
        (place / "a").write_text(text)


def test_a_folder_gets_its_name_when_it_is_whole(tmp_path):
    write(tmp_path / "deep" / "f", "old")
    with pytest.raises(ZeroDivisionError), replaced_folder(tmp_path / "deep" / "f") as place:
        (place / "b").write_text("half")
        raise ZeroDivisionError
    assert names(tmp_path / "deep") == ["f"] and names(tmp_path / "deep" / "f") == ["a"]
    write(tmp_path / "deep" / "f", "new")
    assert (tmp_path / "deep" / "f" / "a").read_text() == "new" and names(tmp_path / "deep") == ["f"]


def test_what_cannot_be_put_in_place_leaves_the_old_folder(tmp_path, monkeypatch):
    write(tmp_path / "f", "old")
    rename = os.rename

    def refuse(source, target, **more):
        if Path(target).name == "f" and not str(source).endswith(".old"):
            raise OSError(28, "No space left on device")
        rename(source, target, **more)

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(PrerequisiteError, match=r"f' cannot be written: No space left"):
        write(tmp_path / "f", "new")
    assert (tmp_path / "f" / "a").read_text() == "old" and names(tmp_path) == ["f"]


def test_a_link_stays_one(tmp_path):
    write(tmp_path / "f", "old")
    (tmp_path / "link").symlink_to("f")
    write(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "f" / "a").read_text() == "new"
    assert names(tmp_path) == ["f", "link"]


def test_where_no_folder_can_be_is_said(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(PrerequisiteError, match="cannot be written"):
        write(tmp_path / "file" / "f", "new")
