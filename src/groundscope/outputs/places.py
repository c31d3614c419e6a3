"""Whether a folder can be made and filled, asked before any work is done."""

from __future__ import annotations

import os
from pathlib import Path

from groundscope.errors import PrerequisiteError

# The longest name that is given to what is written before it gets its own.
_LONGEST = ".{}.12345678.old"


def check_folder_place(folder: str | Path) -> None:
    """Refuse a place where no folder can be made, or one that cannot be written.

    Args:
        folder: What is to be made or filled; it may exist, and so may its parents.

    Raises:
        PrerequisiteError: If a file is in the way, the system does not take the name, or does not let write there.
    """
    place = Path(folder).absolute()
    refused = f"{str(folder)!r} cannot be written: "
    try:
        os.lstat(place.with_name(_LONGEST.format(place.name)))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except OSError as exc:
        raise PrerequisiteError(f"{refused}{exc.strerror}. Choose another -o.") from exc
    nearest = next(parent for parent in place.parents if os.path.lexists(parent))
    for there in (nearest, place):
        if not os.path.lexists(there):
            continue
        if not there.is_dir():
            raise PrerequisiteError(f"{refused}{str(there)!r} is no folder. Choose another -o.")
        if not os.access(there, os.W_OK | os.X_OK):
            raise PrerequisiteError(
                f"{refused}there is no permission to write in {str(there)!r}. Choose another -o, or allow it."
            )
