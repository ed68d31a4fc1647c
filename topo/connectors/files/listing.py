"""The list of files of a source: by a path, a directory or a pattern, oldest first."""

from __future__ import annotations

import glob
import os
import re
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class ListedFile:
    """A file as it was listed."""

    path: str
    size: int
    mtime: float
    inode: int
    version: str
    """Another if the name has another content: inode, time and size of a file, an object's tag."""


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
    if not stat.S_ISREG(status.st_mode):
        return None
    version = f"{status.st_ino}:{status.st_mtime_ns}:{status.st_size}"
    return ListedFile(
        os.path.abspath(path), status.st_size, status.st_mtime, status.st_ino, version
    )


def with_inode(directory: str, inode: int) -> str | None:
    """Return the file of a directory that has this inode: where a renamed file is now."""
    try:
        with os.scandir(directory) as entries:
            return next((entry.path for entry in entries if entry.inode() == inode), None)
    except OSError:
        return None


def fixed_part(pattern: str) -> str:
    """Return a pattern up to its first wildcard."""
    return _WILD.split(pattern, maxsplit=1)[0]


def numbered(name: str) -> Iterator[str]:
    """Yield a name, and then the same with numbers, for whoever must not replace another's."""
    yield name
    stem, suffix = os.path.splitext(name)
    for number in count(2):
        yield f"{stem}-{number}{suffix}"


def move_aside(path: str, directory: str) -> None:
    """Move a file into a directory, under its name, or with a number if that is taken."""
    os.makedirs(directory, exist_ok=True)
    for name in numbered(os.path.join(directory, os.path.basename(path))):
        try:
            with open(name, "xb"):
                pass
        except FileExistsError:
            continue
        try:
            shutil.move(path, name)  # over the empty file, which is ours
        except BaseException:
            os.unlink(name)
            raise
        return
