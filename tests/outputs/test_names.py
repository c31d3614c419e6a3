"""What a name promises is what is written, or it is refused."""

import pytest

from groundscope.errors import InputError
from groundscope.outputs.names import HTML, JSON, LINES, check_folder_name, check_promise, promised


@pytest.mark.parametrize(
    ("name", "said"),
    [("a.jsonl", LINES), ("a.JSON", JSON), ("x/a.b.htm", HTML), ("a", None), (".json", None), ("a.verdicts", None)],
)
def test_the_last_ending_counts(name, said):
    assert promised(name) == said


def test_what_is_promised_must_be_among_what_is_written():
    for name in ("a.jsonl", "a.json", "a", "a.out"):
        check_promise(name, LINES, JSON)
    with pytest.raises(InputError, match=r"'a\.csv' promises CSV.*End the name in \.jsonl \(JSON Lines\) or \.json \("):
        check_promise("a.csv", LINES, JSON)


@pytest.mark.parametrize("name", ["report.html", "store.json", "probe.GZ"])
def test_a_file_is_not_promised_where_a_folder_is_made(tmp_path, name):
    with pytest.raises(InputError, match="a folder is written here"):
        check_folder_name(tmp_path / name)
    (tmp_path / name).mkdir()
    check_folder_name(tmp_path / name)  # made under this name before


@pytest.mark.parametrize("name", ["report", "traces.parquet", "probe.safetensors", "v1.5"])
def test_names_that_folders_go_by(tmp_path, name):
    check_folder_name(tmp_path / name)
