"""Whether an output can be written and may be, asked before any work is done."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from groundscope.errors import InputError, PrerequisiteError
from groundscope.outputs.names import check_folder_name
from groundscope.outputs.writing import temporary_suffix

OTHER_PLACE = "Choose another -o"
START_AGAIN = f"{OTHER_PLACE}, or pass --overwrite to start again."
PARTIAL, RUN = ".partial", ".run.json"
# The longest name that is given to what is written before it gets its own.
_LONGEST = ".{}.12345678.old"


def check_file_place(path: str | Path, inputs: Iterable[str | Path] = ()) -> None:
    """Refuse a place where no file can be written.

    Args:
        path: Where the output goes.
        inputs: Files that are read, which it must not be, under whatever name.

    Raises:
        InputError: If it is one of the inputs, a folder, in a folder that does not exist, or if the system does not
            take the name (the files beside it have longer ones).
    """
    path = Path(path)
    longest = f"{RUN}{temporary_suffix()}"
    try:
        os.lstat(f"{path}{longest}")
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as exc:
        raise InputError(
            f"-o {str(path)!r} cannot be written: {exc.strerror} (files beside it have up to {len(longest)} characters "
            f"more). {OTHER_PLACE}."
        ) from exc
    if path.is_dir():
        raise InputError(f"-o needs the name of a file. Got the folder {str(path)!r}.")
    if not path.absolute().parent.is_dir():
        raise InputError(f"The folder of {str(path)!r} does not exist. Create it, or choose another -o.")
    if path.exists() and any(Path(item).exists() and path.samefile(item) for item in inputs):
        raise InputError(f"-o names the input itself ({str(path)!r}). {OTHER_PLACE}.")


def check_new_file(path: str | Path, inputs: Iterable[str | Path] = (), *, overwrite: bool = False) -> None:
    """Refuse a place where no file can be written, or one that is taken and not to be replaced.

    Raises:
        InputError: If so; see :func:`check_file_place`.
    """
    check_file_place(path, inputs)
    if Path(path).exists() and not overwrite:
        raise InputError(f"{str(path)!r} exists. {OTHER_PLACE}, or pass --overwrite.")


@dataclass(frozen=True)
class FolderKind:
    """A kind of folder that is written here, and how it is told from others.

    Attributes:
        name: What messages call it.
        mark: The file without which it is none.
        parts: Everything else that may lie in it; shell patterns, ``*`` for anything.
        leftovers: What a run that was killed before there was a mark may have left; shell patterns.
        resumes: Whether a run goes on from what is there. If not, all that is there is replaced at once, and only on
            request.
    """

    name: str
    mark: str
    parts: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()
    resumes: bool = False

    @property
    def _one(self) -> str:
        return f"{'an' if self.name[0] in 'aeiou' else 'a'} {self.name}"

    def is_here(self, folder: str | Path) -> bool:
        """Whether there is a folder of this kind, finished or not."""
        return (Path(folder) / self.mark).is_file()

    def check(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Refuse a place that holds something else, something of worth, or cannot be written.

        Args:
            folder: The place; what is not there is made later, parents and all.
            overwrite: Whether what is there of this kind may be replaced; nothing else ever is.

        Raises:
            InputError: If something else is there, or something that is not to be replaced.
            PrerequisiteError: If it cannot be written.
        """
        if not os.fspath(folder):
            raise InputError(f"{self._one.capitalize()} needs the name of a folder. Got an empty one.")
        check_folder_name(folder)
        place = Path(folder)
        if place.exists() and not (place.is_dir() and (self.is_here(place) or self._is_free(place))):
            raise InputError(f"{str(folder)!r} exists and is no {self.name}. Choose another folder.")
        check_folder_place(folder)
        if not self.resumes:
            self._check_replaced(place, overwrite)

    def _is_free(self, place: Path) -> bool:
        return all(_matches(path.name, self.leftovers) for path in place.iterdir())

    def _check_replaced(self, place: Path, overwrite: bool) -> None:
        if self.is_here(place) and not overwrite:
            raise InputError(
                f"{str(place)!r} holds {self._one} already. Pass --overwrite to replace it, or choose another folder."
            )
        known = (self.mark, *self.parts)
        foreign = sorted(path.name for path in place.glob("*") if not _matches(path.name, known))
        if foreign:
            raise InputError(
                f"{str(place)!r} holds {foreign[0]!r}, which is no part of {self._one} and would be lost. "
                "Move it, or choose another folder."
            )
        if Path.cwd().is_relative_to(os.path.realpath(place)):
            raise InputError(
                f"{str(place)!r} is where this command runs, and {self._one} takes the place of a whole folder. "
                "Name a folder in it."
            )


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def check_folder_place(folder: str | Path) -> None:
    """Refuse a place where no folder can be made, or one that cannot be written.

    Args:
        folder: What is to be made or filled; it may exist, and so may its parents.

    Raises:
        PrerequisiteError: If a file is in the way, the system does not take the name, or does not let write there.
    """
    place = Path(os.path.realpath(folder))
    refused = f"{str(folder)!r} cannot be written: "
    try:
        os.lstat(place.with_name(_LONGEST.format(place.name)))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except OSError as exc:
        raise PrerequisiteError(f"{refused}{exc.strerror}. {OTHER_PLACE}.") from exc
    nearest = next(parent for parent in place.parents if os.path.lexists(parent))
    for there in (nearest, place):
        if not os.path.lexists(there):
            continue
        if not there.is_dir():
            raise PrerequisiteError(f"{refused}{str(there)!r} is no folder. {OTHER_PLACE}.")
        if not os.access(there, os.W_OK | os.X_OK):
            raise PrerequisiteError(
                f"{refused}there is no permission to write in {str(there)!r}. {OTHER_PLACE}, or allow it."
            )
