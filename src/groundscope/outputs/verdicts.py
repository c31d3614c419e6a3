"""Verdicts in a file: written one by one, and read back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from groundscope.errors import InputError
from groundscope.outputs.runs import RunWriter, run_records
from groundscope.verdict import Verdict


def read_verdicts(path: str | Path) -> Iterator[Verdict]:
    """Yield the verdicts of a file that :class:`VerdictWriter` wrote, finished or not.

    Raises:
        InputError: If a line is not a verdict.
    """
    for number, record in run_records(Path(path)):
        try:
            yield Verdict.from_dict(record)
        except InputError as exc:
            raise InputError(f"{path}, line {number}: {exc}") from exc


class VerdictWriter(RunWriter):
    """A :class:`RunWriter` of verdicts.

    Args:
        path: The final name of the output.
        settings: Whatever decides what the verdicts say; plain JSON values.
        include_context: Whether to write question and passages too.
        overwrite: Whether to discard what an earlier run made.
    """

    def __init__(
        self,
        path: str | Path,
        settings: Mapping[str, Any],
        *,
        include_context: bool = False,
        overwrite: bool = False,
    ) -> None:
        super().__init__(path, settings, overwrite=overwrite, read=Verdict.from_dict)
        self.include_context = include_context

    def write(self, verdict: Verdict) -> None:
        """Append one verdict and hand it to the operating system at once.

        Raises:
            InputError: If the verdict has no id: a resumed run could not tell that it is done.
            PrerequisiteError: If the disk is full or gone; what was written before stays.
        """
        if verdict.id is None:
            raise InputError("A verdict needs an id to be written. Got id=None; give the Example an id.")
        self.write_record(verdict.to_dict(self.include_context))
