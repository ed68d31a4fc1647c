"""The list of files of a source: by a path, a directory or a pattern, oldest first."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass

_ROTATED = re.compile(r"(\.\d+|[-.]\d{8}([-T_.]?\d+)*|\.(gz|bz2|xz|zst))+$")


@dataclass(frozen=True)
class ListedFile:
    """A file as it was listed."""

    path: str
    size: int
    mtime: float
    inode: int


def list_files(pattern: str) -> list[ListedFile]:
    """Return the files of a path, a directory or a glob pattern, by time and then by name.

    Names that begin with a dot or an underscore are somebody's unfinished work, and left out.
    """
    if os.path.isdir(pattern):
        pattern = os.path.join(glob.escape(pattern), "*")
    listed = []
    for path in glob.glob(pattern, recursive=True):
        if os.path.basename(path).startswith((".", "_")):
            continue
        found = look_at(path)
        if found is not None:
            listed.append(found)
    return sorted(listed, key=lambda one: (one.mtime, one.path))


def look_at(path: str) -> ListedFile | None:
    """Return what a file looks like now; None if it is no file, or gone."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    if not os.path.isfile(path):
        return None
    return ListedFile(os.path.abspath(path), status.st_size, status.st_mtime, status.st_ino)


def with_inode(directory: str, inode: int) -> str | None:
    """Return the file of a directory that has this inode: where a renamed file is now."""
    try:
        with os.scandir(directory) as entries:
            return next((entry.path for entry in entries if entry.inode() == inode), None)
    except OSError:
        return None


def family(path: str) -> str:
    """Return the name under which a log file was written before it was rotated."""
    head, name = os.path.split(path)
    return os.path.join(head, _ROTATED.sub("", name) or name)
