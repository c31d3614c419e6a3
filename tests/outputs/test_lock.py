import pytest

from groundscope.errors import InputError, PrerequisiteError
from groundscope.outputs.lock import only_writer


def test_two_runs_never_write_one_output(tmp_path):
    with only_writer(tmp_path / "new" / "s"):
        with pytest.raises(InputError, match="Another run is writing"), only_writer(tmp_path / "new" / "s"):
            raise AssertionError
        with only_writer(tmp_path / "new" / "other"):
            pass
    with only_writer(tmp_path / "new" / "s"):
        pass
    assert list((tmp_path / "new").iterdir()) == []


def test_what_stands_in_the_place_of_the_lock_is_said(tmp_path):
    (tmp_path / "s.lock").mkdir()
    with pytest.raises(PrerequisiteError, match=r"s\.lock' cannot be made.*another -o"), only_writer(tmp_path / "s"):
        raise AssertionError


def test_another_name_of_the_same_place_is_no_way_in(tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "link").symlink_to("s")
    (tmp_path / "folder").symlink_to(tmp_path)
    with only_writer(tmp_path / "s"):
        for other in (tmp_path / "link", tmp_path / "folder" / "s", tmp_path / "s" / ".." / "s"):
            with pytest.raises(InputError, match="Another run is writing"), only_writer(other):
                raise AssertionError
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "link", "s"]
