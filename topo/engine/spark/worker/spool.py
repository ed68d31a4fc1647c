"""Frames between slots of one machine: they are in files, and Spark's rows name the places.

A byte in Spark's rows is copied some eight times on its way, between processes with different
layouts; that took a fifth of all CPU of a word count, and more with tuple trees. So the frames that
an execution sends on, unless they are small, are written to one file of the run's directory, and
the row has the file's name and the places in it. A published file never changes. Spark stores these
rows like all rows, so that a retried task, in this or another slot process, reads the same bytes;
the files of an attempt that died are named by no row. The files of a batch are removed when the
slot begins a later one, which Spark starts only after the commit.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from topo.engine.spark.worker.messages import Payload
from topo.errors import EngineError, words_of
from topo.wire.payload import REFERENCE


class FramesLost(EngineError):
    """The loss of frames, or a failure to store them: the batch has to be run again."""

    code = "frames-lost"


class Spool:
    """One slot's spool: up to `most_in_rows` bytes go in rows; all if there is no directory."""

    def __init__(self, directory: str, slot: int, most_in_rows: int) -> None:
        self._directory = Path(directory) if directory else None
        self._slot = slot
        self._most_in_rows = most_in_rows
        self._cleared_before = -1

    def begin(self, batch: int) -> Bundle:
        """Return a bundle for the frames that an execution of this batch sends on."""
        if self._directory is None:
            return Bundle(None, 0)
        self._clear_before(batch)
        name = f"frames-{self._slot}-{batch}-{uuid.uuid4().hex}"
        return Bundle(self._directory / name, self._most_in_rows)

    def _clear_before(self, batch: int) -> None:
        """Remove this slot's files of earlier batches, and those of earlier processes."""
        if batch <= self._cleared_before:
            return
        assert self._directory is not None
        for path in self._directory.glob(f"frames-{self._slot}-*"):
            if int(path.name.split("-")[2]) < batch:
                path.unlink(missing_ok=True)
        self._cleared_before = batch


class Bundle:
    """The frames that one execution sends on; call `sends` at its end."""

    def __init__(self, path: Path | None, most_in_rows: int) -> None:
        self._path = path
        self._most_in_rows = most_in_rows
        self._file: BinaryIO | None = None
        self._size = 0
        self._small: list[tuple[int, int, Payload]] = []
        self._places: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def add(self, slot: int, level: int, data: Payload) -> None:
        self._size += len(data)
        if self._path is None or self._size <= self._most_in_rows:
            self._small.append((slot, level, data))
            return
        try:
            if self._file is None:
                self._file = self._opened(self._path)
            self._places.setdefault((slot, level), []).append((self._file.tell(), len(data)))
            self._file.write(data)
        except OSError as error:
            raise _unwritable(self._path, error) from error

    @staticmethod
    def _opened(path: Path) -> BinaryIO:
        try:
            return path.open("xb")
        except FileNotFoundError:  # something has cleaned up in the temporary directory
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return path.open("xb")

    def sends(self) -> list[tuple[int, int, Payload]]:
        """Return slot, level and payload of all frames that were added."""
        references: list[tuple[int, int, Payload]] = [
            (slot, level, bytes([REFERENCE]) + pickle.dumps((str(self._path), places)))
            for (slot, level), places in self._places.items()
        ]
        return self._small + references

    def __enter__(self) -> Bundle:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._file is None:
            return
        assert self._path is not None
        if error is None:
            try:
                self._file.close()
            except OSError as failed:
                raise _unwritable(self._path, failed) from failed
            return
        with contextlib.suppress(OSError):  # a full disk's, which was raised already
            self._file.close()
        self._path.unlink(missing_ok=True)


def each_frame(payloads: Iterable[Payload]) -> Iterator[Payload]:
    """Yield the frames that have come; those in files are not read yet."""
    for payload in payloads:
        if payload[0] != REFERENCE:
            yield payload
            continue
        path, places = pickle.loads(memoryview(payload)[1:])
        whole = memoryview(_mapped(path))
        for start, size in places:
            yield whole[start : start + size]


def _unwritable(path: Path, error: OSError) -> FramesLost:
    return FramesLost(
        f"frames on their way from slot to slot cannot be written: {words_of(error)}",
        at=str(path.parent),
        hint="free some space there, or let TMPDIR name a directory that has more",
    )


def _mapped(path: str) -> mmap.mmap:
    try:
        with open(path, "rb") as file:
            return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    except OSError as error:
        raise FramesLost(
            f"frames on their way from slot to slot are gone: {os.path.basename(path)}: "
            f"{words_of(error)}",
            at=os.path.dirname(path),
            hint="has something cleaned up in the temporary directory?",
        ) from error
