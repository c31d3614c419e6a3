"""What lies in a folder is told apart, and nothing but what may be replaced ever is."""

import pytest

from groundscope.errors import InputError, PrerequisiteError
from groundscope.outputs.places import FolderKind, check_file_place, check_new_file

REPORT = FolderKind("report", "results.json", parts=("report.md", "plots"))
STORE = FolderKind("store", "store.json", leftovers=("*.tmp",), resumes=True)


def fill(folder, *names):
    folder.mkdir()
    for name in names:
        (folder / name).write_text("mine")
    return folder


@pytest.mark.parametrize("kind", [REPORT, STORE], ids=lambda kind: kind.name)
def test_free_places(tmp_path, kind):
    kind.check(tmp_path / "new")
    kind.check(tmp_path / "with" / "parents")
    kind.check(fill(tmp_path / "empty"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty"]


@pytest.mark.parametrize("kind", [REPORT, STORE], ids=lambda kind: kind.name)
def test_other_things_are_never_replaced(tmp_path, kind):
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", fill(tmp_path / "folder", "thesis")):
        with pytest.raises(InputError, match=f"exists and is no {kind.name}"):
            kind.check(place, overwrite=True)


def test_what_takes_the_place_of_a_folder_is_asked_for(tmp_path):
    place = fill(tmp_path / "out", "results.json", "report.md")
    with pytest.raises(InputError, match=r"holds a report already\. Pass --overwrite"):
        REPORT.check(place)
    REPORT.check(place, overwrite=True)
    (place / ".git").write_text("years")
    with pytest.raises(InputError, match=r"holds '\.git', which is no part of a report and would be lost"):
        REPORT.check(place, overwrite=True)


def test_what_is_gone_on_with_needs_no_asking(tmp_path):
    STORE.check(fill(tmp_path / "killed", "store.json.12.tmp"))
    STORE.check(fill(tmp_path / "store", "store.json", "notes"))


def test_nobodys_folder_is_taken_away_under_him(tmp_path, monkeypatch):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    for place in (".", inner):
        with pytest.raises(InputError, match="is where this command runs"):
            REPORT.check(place)
        STORE.check(place)


@pytest.mark.parametrize("kind", [REPORT, STORE], ids=lambda kind: kind.name)
def test_no_name_is_no_place(kind):
    with pytest.raises(InputError, match="needs the name of a folder"):
        kind.check("")


def test_a_link_that_leads_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "file" / "out")
    with pytest.raises(PrerequisiteError, match="is no folder"):
        REPORT.check(tmp_path / "link")


def test_a_file_is_new_or_replaced_on_request(tmp_path):
    check_new_file(tmp_path / "new")
    (tmp_path / "old").write_text("mine")
    with pytest.raises(InputError, match=r"exists. Choose another -o, or pass --overwrite\."):
        check_new_file(tmp_path / "old")
    check_new_file(tmp_path / "old", overwrite=True)
    for check in (check_file_place, check_new_file):
        with pytest.raises(InputError, match="names the input itself"):
            check(tmp_path / "old", [tmp_path / "old"])
