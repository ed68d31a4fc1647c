"""The two kinds of places that files are written to: a directory, and objects of a store.

In a directory the rows of an open file are appended to a hidden one, whose committed length is in
state. An object cannot be appended to: what an open file has is in state itself, a piece a batch,
until there is enough of it for a part of the object, which is uploaded when it is committed. With
the last part the object is there at once. Formats that are not text have no parts: their pieces
stay in state. Either way a name never changes its content.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Protocol

from topo.connectors.files.objects import ObjectStore
from topo.connectors.files.writers import TEXT, finish, numbered
from topo.errors import ComponentError, Unavailable, words_of
from topo.state import KeyValueState

OPEN = "_open"
_OF_THE_NAME = (errno.ENAMETOOLONG, errno.EINVAL, errno.EISDIR, errno.ENOTDIR, errno.EEXIST)
"""Errors of a path that no waiting mends."""
_KEY_BYTES = 1024
"""Of a key of S3, at most."""
PART_BYTES = 8 << 20
"""Of an object; S3 takes no smaller one than 5 MB, but for the last."""
UPLOAD = "upload"
"""In state, with a file's name: the upload's id, the tags of its parts, and the bytes in them."""
PIECE = "piece"
"""In state, with a file's name and a number: rows of an open file that will be an object."""

Part = Mapping[str, Any]
"""A file that is being written: its name, partition, bytes, and since when."""


class Place(Protocol):
    """The files of a sink; `task` is how the names of its task's files begin."""

    def recover(self, task: str, parts: dict[str, Any], ending: Iterable[Part]) -> None:
        """Bring open files to the state that is committed."""

    def remove_later(self, task: str, last: int) -> None:
        """Remove the files of batches after the last one that has committed."""

    def check(self, partition: str, name: str) -> None:
        """Raise ValueError for a partition that can have no files with such names."""

    def write(self, form: str, partition: str, name: str, data: bytes) -> None:
        """Write a file of collected rows under its name, over one that is there."""

    def append(self, part: Part, data: bytes) -> None:
        """Add rows to an open file."""

    def committed(self, form: str, part: Part) -> None:
        """Hear that all of an open file is committed."""

    def finish(self, form: str, part: Part) -> list[str]:
        """Give an open file its name, and return it; nothing if it has it already.

        There may be several names: see `writers.finish`.
        """

    def names(self, part: Part) -> list[str]:
        """Return the names that a file has got."""

    def target(self, part: Part) -> str:
        """Return the name that a file will have."""

    def close(self) -> None: ...


class Directory:
    """Files below a directory."""

    def __init__(self, connector: str, directory: str) -> None:
        self._connector, self._directory = connector, directory

    def recover(self, task: str, parts: dict[str, Any], ending: Iterable[Part]) -> None:
        with self._reaching("cleaning up"):
            directory = Path(self._directory, OPEN)
            wanted = {part["name"]: part for part in [*parts.values(), *ending]}
            for path in directory.glob(f"{task}*") if directory.is_dir() else ():
                part = wanted.get(path.name)
                if part is None:
                    path.unlink()
                elif path.stat().st_size > part["bytes"]:
                    os.truncate(path, part["bytes"])
            for partition, part in list(parts.items()):
                if not self._path(part).exists():
                    if not Path(self.target(part)).exists():
                        raise ComponentError(
                            f"{self._connector}: {self._path(part)} is gone, with {part['bytes']} "
                            "bytes that are committed",
                            hint="put it back, or start with a fresh checkpoint",
                        )
                    del parts[partition]  # it got its name when the run ended

    def remove_later(self, task: str, last: int) -> None:
        with self._reaching("cleaning up"):
            root = Path(self._directory)
            for path in root.rglob(f"{task}*") if root.is_dir() else ():
                if is_later(path.name, task, last):
                    path.unlink()

    def check(self, partition: str, name: str) -> None:
        with self._reaching("writing"):
            Path(self._directory).mkdir(parents=True, exist_ok=True)
            try:
                os.path.lexists(self._made(partition) / name)
            except OSError as error:
                if error.errno not in _OF_THE_NAME:
                    raise
                raise ValueError(f"no directory {partition[:200]!r}: {words_of(error)}") from error

    def write(self, form: str, partition: str, name: str, data: bytes) -> None:
        with self._reaching("writing"):
            unfinished = self._made(OPEN) / f"{name}.{len(partition)}"
            unfinished.write_bytes(data)
            finish(form, unfinished, self._made(partition) / name)

    def append(self, part: Part, data: bytes) -> None:
        with self._reaching("writing"):
            self._made(OPEN)
            with self._path(part).open("ab") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())

    def committed(self, form: str, part: Part) -> None:
        """Do nothing: it is in its file."""

    def finish(self, form: str, part: Part) -> list[str]:
        with self._reaching("finishing"):
            if not self._path(part).exists():
                return []
            self._made(part["partition"])
            return [*map(str, finish(form, self._path(part), Path(self.target(part))))]

    def names(self, part: Part) -> list[str]:
        return _those_of(part["name"], self.target(part), os.path.exists)

    def target(self, part: Part) -> str:
        return str(Path(self._directory, part["partition"], part["name"]))

    def close(self) -> None: ...

    def _path(self, part: Part) -> Path:
        return Path(self._directory, OPEN, part["name"])

    def _made(self, partition: str) -> Path:
        path = Path(self._directory, partition)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _reaching(self, doing: str) -> _Reaching:
        return _Reaching(f"{self._connector}: {doing} in {self._directory}")


class Objects:
    """Objects below a prefix, and the pieces of open ones in a sink's state."""

    def __init__(
        self,
        connector: str,
        prefix: str,
        storage: Mapping[str, Any],
        state: KeyValueState[Any, Any],
    ) -> None:
        self._store = ObjectStore(connector, prefix, storage)
        self._prefix, self._state = prefix.rstrip("/"), state

    def recover(self, task: str, parts: dict[str, Any], ending: Iterable[Part]) -> None:
        """Forget files that got their names when a run ended, and uploads of lost attempts."""
        for partition, part in list(parts.items()):
            if (UPLOAD, part["name"]) in self._state and self._store.version(
                self.target(part)
            ) is not None:
                self._forget(part)
                del parts[partition]
        state = self._state.raw()
        known = {state[key]["id"] for key in state if key[0] == UPLOAD}
        with suppress(ComponentError):  # who may not list them leaves them to the store's rules
            self._store.abort_uploads(f"{self._prefix}/{task}", known)

    def remove_later(self, task: str, last: int) -> None:
        for found in self._store.list(f"{self._prefix}/"):
            if is_later(found.path.rpartition("/")[2], task, last):
                self._store.remove(found.path)

    def check(self, partition: str, name: str) -> None:
        key = self.target({"partition": partition, "name": name}).split("/", 3)[3]
        if len(key.encode()) > _KEY_BYTES:
            raise ValueError(
                f"no prefix {partition[:200]!r}: a key has at most {_KEY_BYTES:,} bytes"
            )

    def write(self, form: str, partition: str, name: str, data: bytes) -> None:
        self._put(form, partition, name, data)

    def _put(self, form: str, partition: str, name: str, data: bytes) -> list[str]:
        targets = []
        with tempfile.TemporaryDirectory(prefix="topo-object-") as directory:
            collected = Path(directory, "collected")
            collected.write_bytes(data)
            for whole in finish(form, collected, Path(directory, name)):
                targets.append(self.target({"partition": partition, "name": whole.name}))
                self._store.put(targets[-1], str(whole))
        return targets

    def append(self, part: Part, data: bytes) -> None:
        self._state[PIECE, part["name"], part["bytes"]] = data

    def committed(self, form: str, part: Part) -> None:
        """Upload a part, if there is enough for one.

        If the process dies before the next commit, the same part is uploaded again.
        """
        upload = self._state.raw().get((UPLOAD, part["name"]))
        held = part["bytes"] - (upload["bytes"] if upload is not None else 0)
        if held < PART_BYTES or form not in TEXT:
            return
        target = self.target(part)
        if upload is None:
            upload = {"id": self._store.begin_upload(target), "tags": [], "bytes": 0}
        self._upload_held(part, upload)

    def _upload_held(self, part: Part, upload: dict[str, Any]) -> list[str]:
        """Upload what is in state as the next part; return the tags of all parts."""
        keys = self._held(part)
        if not keys:
            return list(upload["tags"])
        data = b"".join(self._state.raw()[key] for key in keys)
        number = len(upload["tags"]) + 1
        tag = self._store.upload_part(self.target(part), upload["id"], number, data)
        tags = [*upload["tags"], tag]
        size = upload["bytes"] + len(data)
        self._state[UPLOAD, part["name"]] = {"id": upload["id"], "tags": tags, "bytes": size}
        for key in keys:
            del self._state[key]
        return tags

    def _held(self, part: Part) -> list[Any]:
        return sorted(key for key in self._state.raw() if key[:2] == (PIECE, part["name"]))

    def finish(self, form: str, part: Part) -> list[str]:
        upload = self._state.raw().get((UPLOAD, part["name"]))
        if upload is None:
            mine = self._held(part)
            if not mine:
                return []
            data = b"".join(self._state.raw()[key] for key in mine)
            targets = self._put(form, part["partition"], part["name"], data)
        else:
            self._complete(part, upload)
            targets = [self.target(part)]
        self._forget(part)
        return targets

    def names(self, part: Part) -> list[str]:
        return _those_of(part["name"], self.target(part), self._store.exists)

    def _complete(self, part: Part, upload: dict[str, Any]) -> None:
        target = self.target(part)
        try:
            self._store.complete(target, upload["id"], self._upload_held(part, upload))
        except ComponentError as error:
            # It is complete, if the process has died right after; else somebody has aborted it.
            if "NoSuchUpload" not in str(error) or not self._store.exists(target):
                raise

    def _forget(self, part: Part) -> None:
        for key in [*self._held(part), (UPLOAD, part["name"])]:
            self._state.pop(key, None)

    def target(self, part: Part) -> str:
        return "/".join(filter(None, (self._prefix, part["partition"], part["name"])))

    def close(self) -> None:
        self._store.close()


def _those_of(name: str, target: str, exists: Callable[[str], bool]) -> list[str]:
    """Return the target, and the numbered names beside it that are there."""
    beside = target.removesuffix(name)
    names = (beside + numbered(name, number) for number in count(1))
    return [target, *takewhile(exists, names)]


def is_later(name: str, task: str, last: int) -> bool:
    """Return True if a name is of a file that a task wrote in a batch after the last one."""
    if not name.startswith(task):
        return False
    number = name.removeprefix(task).partition(".")[0]
    return number.isdigit() and int(number) > last


class _Reaching:
    """Turns an error of the file system into one that may pass, as a full disk does, or stays."""

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, OSError) and error.errno in (*_OF_THE_NAME, errno.EROFS):
            raise ComponentError(
                f"{self._doing}: {words_of(error)}", hint="no file can be written there"
            ) from error
        if isinstance(error, OSError) and error.errno:
            raise Unavailable(f"{self._doing}: {words_of(error)}") from error
