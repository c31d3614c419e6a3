"""What the name of an output promises, so that nothing else is written under it."""

from __future__ import annotations

from pathlib import Path

from groundscope.errors import InputError

LINES, JSON, HTML, TEXT = "JSON Lines", "one JSON document", "an HTML page", "plain text"
GZIP = "a gzip file"
_PROMISES = {
    ".jsonl": LINES,
    ".ndjson": LINES,
    ".json": JSON,
    ".html": HTML,
    ".htm": HTML,
    ".txt": TEXT,
    ".md": "Markdown",
    ".csv": "CSV",
    ".tsv": "TSV",
    ".xlsx": "a spreadsheet",
    ".pdf": "a PDF",
    ".xml": "XML",
    ".yaml": "YAML",
    ".yml": "YAML",
    ".gz": GZIP,
    ".bz2": "a bzip2 file",
    ".xz": "an xz file",
    ".zst": "a zstd file",
    ".zip": "a zip archive",
    ".parquet": "a Parquet file",
    ".safetensors": "a safetensors file",
}
# Folders of shards and of models often go by such a name.
_FOLDERS_TOO = (".parquet", ".safetensors")


def promised(path: str | Path) -> str | None:
    """Return what the last extension of a name says is in it; ``None`` if it says nothing known."""
    return _PROMISES.get(Path(path).suffix.lower())


def check_promise(path: str | Path, *written: str) -> None:
    """Refuse a name that promises something else than what is written. A name that promises nothing is taken.

    Args:
        path: Where the output goes.
        written: What it may hold; the first is what the message advises.

    Raises:
        InputError: If it promises anything else.
    """
    said = promised(path)
    if said is None or said in written:
        return
    endings = {what: ending for ending, what in reversed(_PROMISES.items())}
    names = " or ".join(f"{endings[what]} ({what})" for what in written)
    raise InputError(f"-o {str(path)!r} promises {said}, which is not written here. End the name in {names}.")


def check_folder_name(path: str | Path) -> None:
    """Refuse the name of a file for a folder that is to be made.

    Raises:
        InputError: If nothing is there yet and the name promises a file.
    """
    said = promised(path)
    if said is not None and Path(path).suffix.lower() not in _FOLDERS_TOO and not Path(path).exists():
        raise InputError(f"{str(path)!r} promises {said}, and a folder is written here. Name a folder.")
