"""Files that stay readable after a crash at any point, and locks that end with their process."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from topo.systems import pack_flock, unpack_flock


def write_atomically(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace `path` atomically: a reader sees the old content or the new, even after a crash."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    sync_directory(path.parent)


def write_json(path: Path, document: object) -> None:
    text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
    # A lone surrogate, of a file name in another encoding, is a valid escape in JSON.
    write_atomically(path, text.encode("utf-8", "backslashreplace"))


def write_json_if_possible(path: Path, document: object) -> bool:
    """Write atomically and return True; only log what fails, which must not stop a topology.

    A disk may be full; what is shown may hold what JSON lacks.
    """
    try:
        write_json(path, document)
        return True
    except (OSError, ValueError, TypeError, RecursionError) as error:
        with suppress(OSError):  # the log may be on the same disk
            print(f"cannot write {path.name}: {error}", file=sys.stderr, flush=True)
        return False


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the document, or None if the file does not exist."""
    try:
        document: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return document


def sync_directory(path: Path) -> None:
    """Make renames in a directory durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class ProcessLock:
    """A lock on a file for as long as this process lives, or until `release`.

    It is a POSIX record lock: the kernel drops it when the process ends in any way, and children
    do not inherit it. (An flock would live on in a forked child, and a pid may belong to another
    process when it is read.)
    """

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.lockf(self._handle, fcntl.LOCK_EX)

    def release(self) -> None:
        os.close(self._handle)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    lock = ProcessLock(path)
    try:
        yield
    finally:
        lock.release()


def lock_holder(path: Path) -> int | None:
    """Return the process that holds the lock, or None. The holder itself must not call this: a
    record lock ends when its process closes any handle of the file."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        answer = fcntl.fcntl(handle, fcntl.F_GETLK, pack_flock(fcntl.F_WRLCK))
    finally:
        os.close(handle)
    kind, pid = unpack_flock(answer)
    return None if kind == fcntl.F_UNLCK else pid
