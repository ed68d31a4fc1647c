"""The files of a component in another language, which travel in its pickle.

A child runs in a copy of the directory as it was when the topology was built: so every worker has
the same files, and a change of them does not reach half of the children that run.
"""

from __future__ import annotations

import atexit
import io
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

from topo.errors import ComponentError
from topo.traces import callers_place

_MOST_BYTES = 100 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of each file in an archive: equal files make equal archives."""
_LEFT_OUT = {"__pycache__"}

_unpacked: dict[str, Path] = {}
"""Where this process has unpacked an archive, by its digest."""
_unpacking = Lock()


class ShellFiles:
    """A directory, or the archive that came of it on its way."""

    def __init__(self, directory: Path | None) -> None:
        if directory is not None:
            check_size(directory)
        self._directory = directory
        self._archive: bytes | None = None

    def __getstate__(self) -> dict[str, Any]:
        if self._archive is None and self._directory is not None:
            self._archive = packed(self._directory)
        return {"_directory": None, "_archive": self._archive}

    def open(self) -> Path | None:
        """Return the directory; None if none was given."""
        if self._directory is not None or self._archive is None:
            return self._directory
        digest = sha256(self._archive).hexdigest()
        with _unpacking:
            if digest not in _unpacked:
                _unpacked[digest] = _unpack(self._archive)
            return _unpacked[digest]


def directory_of(component: type, cwd: str | os.PathLike[str] | None) -> Path | None:
    """Return the directory that `cwd` names, beside the code that made or declared the component.

    Without a directory of that name it is the code's own; None travels with nothing.
    """
    if cwd is None:
        return None
    is_declared = not component.__module__.startswith("topo.")
    file = getattr(sys.modules.get(component.__module__), "__file__", None) if is_declared else None
    place = Path(file or callers_place().rpartition(":")[0])
    beside = place.parent if place.is_file() else Path.cwd()  # a prompt, a notebook
    directory = (beside / cwd).resolve()
    if directory.is_dir():
        return directory
    if Path(cwd).is_absolute() or cwd != "resources":
        raise ComponentError(
            f"{component.__name__}: there is no directory {directory}",
            hint="cwd has the component's files; cwd=None starts it where the task runs",
        )
    return beside.resolve()


def check_size(directory: Path) -> None:
    """Raise ComponentError if the files are more than may travel."""
    size = 0
    for _, file in _files(directory):
        size += file.stat().st_size
        if size > _MOST_BYTES:
            raise ComponentError(
                f"{directory} has more than {_MOST_BYTES >> 20} MB, which would travel with the"
                " topology",
                hint="put the component's files into a directory of their own, as resources/; or "
                "install them on the workers, with cwd=None",
            )


def packed(directory: Path) -> bytes:
    """Return an archive of a directory's files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in sorted(_files(directory)):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = (file.stat().st_mode & 0o777) << 16
            archive.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _files(directory: Path) -> Iterator[tuple[str, Path]]:
    for parent, directories, files in os.walk(directory):
        directories[:] = [name for name in directories if not _is_left_out(name)]
        for name in files:
            file = Path(parent, name)
            if not _is_left_out(name) and file.is_file():
                yield file.relative_to(directory).as_posix(), file


def _is_left_out(name: str) -> bool:
    return name.startswith(".") or name in _LEFT_OUT or name.endswith(".pyc")


def _unpack(archive: bytes) -> Path:
    directory = Path(tempfile.mkdtemp(prefix="topo-shell-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    with zipfile.ZipFile(io.BytesIO(archive)) as files:
        for entry in files.infolist():
            file = Path(files.extract(entry, directory))
            file.chmod((entry.external_attr >> 16) | 0o600)
    return directory
