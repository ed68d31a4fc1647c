"""The log of epochs: what makes a commit durable, and what a run resumes from.

One record an epoch holds what changed in saved state, what the ledger was told, and when. The log
is a directory of segments, each named after its first epoch, and of at most one snapshot, which
replaces all epochs up to its own. One thread of the driver that owns the checkpoint writes. A
record is one write, so a process that dies leaves whole records and a torn one at the very end.

A record carries checksums of its head and of its body. Damage at the end of the last segment, with
no valid record behind it, is what a death in the middle of a write leaves: it is cut off. Damage
anywhere else is another thing: epochs behind it were acked, so the log is refused.

Values stay in the files. What is in memory is where each one lies, and reading them back is for the
start of a run. When as much was written since the last snapshot as that has bytes, and not less
than 16 MB, a thread copies what lives to another one, while epochs go on into the next segment.
"""

from __future__ import annotations

import os
import pickle
import threading
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from topo.engine.spark.realtime.epochs import Committed, EpochRecord, Key
from topo.engine.spark.realtime.records import (
    HEAD_BYTES,
    head_of,
    is_torn,
    pack_record,
    read_log,
    start_of,
    unpack_record,
)
from topo.errors import CheckpointError, EngineError, words_of

COMPACT_BYTES = 16 << 20
_COPY_BYTES = 4 << 20


class LogFailed(EngineError):
    """The log of epochs cannot be written: nothing more is acked."""

    code = "epoch-log"


@dataclass(frozen=True)
class Place:
    """The place of a value in a file."""

    file: str
    at: int
    size: int


class EpochStore:
    """The log of one checkpoint. One thread calls it; compaction has a thread of its own.

    `sync` makes each commit wait for the disk, so that it outlives the machine and not only the
    process.
    """

    def __init__(
        self, directory: Path, *, sync: bool = False, compact_bytes: int = COMPACT_BYTES
    ) -> None:
        self.directory = directory
        self._sync = sync
        self._compact_bytes = compact_bytes
        self._index: dict[Key, Place] = {}
        self._bytes = 0  # of all files
        self._base = 0  # of the snapshot among them
        self._file: FileIO | None = None
        self._name = ""
        self._size = 0
        self._compaction: _Compaction | None = None
        self._failure: LogFailed | CheckpointError | None = None

    # -- recovery -----------------------------------------------------------------------------

    def recover(self, committed: Committed) -> Committed:
        """Read what is there, cut off a torn end, and return what was committed last."""
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            return self._recover(committed)
        except BaseException:
            self.close()
            raise

    def _recover(self, committed: Committed) -> Committed:
        for path in self.directory.glob("*.tmp"):
            path.unlink()
        snapshots = sorted(self.directory.glob("*.snapshot"))
        if snapshots:
            committed = self._read_snapshot(snapshots[-1])
            for path in snapshots[:-1]:
                path.unlink()
        segments = sorted(self.directory.glob("*.log"))
        for path in list(segments):
            if not path.stem.isdigit():
                raise self._refused(path, 0, "this is no segment of topo's")
            if snapshots and int(path.stem) <= int(snapshots[-1].stem):
                # Compaction begins a segment behind its snapshot, so all of it is in there.
                path.unlink()
                segments.remove(path)
        for path in segments:
            self._read_segment(path, committed, is_last=path == segments[-1])
        self._open_segment(committed.epoch + 1, segments[-1] if segments else None)
        return committed

    def restore(self) -> dict[int, dict[str, bytes]]:
        """Return all saved state, by task and name."""
        saved: dict[int, dict[str, bytes]] = {}
        by_file: dict[str, list[tuple[Key, Place]]] = {}
        for key, place in self._index.items():
            by_file.setdefault(place.file, []).append((key, place))
        for name, entries in by_file.items():
            with (self.directory / name).open("rb") as file:
                for (task, record), place in sorted(entries, key=lambda entry: entry[1].at):
                    file.seek(place.at)
                    saved.setdefault(task, {})[record] = file.read(place.size)
        return saved

    def _read_snapshot(self, path: Path) -> Committed:
        data = path.read_bytes()
        records, end = read_log(data)
        if len(records) != 1 or end != len(data):
            raise self._refused(path, end, "the snapshot is damaged")
        state, sizes = records[0].meta
        self._take_places(path.name, records[0].blobs_at, sizes)
        self._base = len(data)
        self._bytes += len(data)
        committed: Committed = pickle.loads(state)
        return committed

    def _read_segment(self, path: Path, committed: Committed, *, is_last: bool) -> None:
        data = path.read_bytes()
        records, end = read_log(data)
        if end < len(data):
            if not is_last or not is_torn(data, end):
                raise self._refused(path, end, "a record is damaged, and others follow it")
            with path.open("r+b") as file:
                file.truncate(end)
        for found in records:
            if found.epoch != committed.epoch + 1:
                raise self._refused(path, 0, f"epoch {found.epoch} follows epoch {committed.epoch}")
            record, sizes = unpack_record(found)
            committed.apply(record)
            self._drop(record.deletes)
            self._take_places(path.name, found.blobs_at, sizes)
        self._bytes += end

    def _refused(self, path: Path, at: int, why: str) -> CheckpointError:
        return CheckpointError(
            f"the log of epochs cannot be read: {why}",
            at=f"{path}, byte {at}",
            hint="bring back a copy of the checkpoint, or start with a fresh one",
        )

    # -- commits ------------------------------------------------------------------------------

    def append(self, record: EpochRecord, committed: Committed) -> None:
        """Make an epoch durable; what it raises, it raises before anything may be acked.

        `committed` is as of the epoch before.
        """
        if self._failure is not None:
            raise self._failure
        assert self._file is not None, "recover comes first"
        data = pack_record(record)
        try:
            self._tend(committed)
            left = memoryview(data)
            while left:  # a disk that is nearly full takes a part, and refuses the next one
                left = left[self._file.write(left) :]
            if self._sync:
                os.fdatasync(self._file.fileno())
        except OSError as error:
            with suppress(OSError, ValueError):  # else the next start cuts it off
                self._file.truncate(self._size)
            # After a failed sync nobody knows what is on the disk, so this is final.
            self._failure = self._failed(error)
            raise self._failure from error
        blobs = sum(map(len, record.puts.values()))
        self._drop(record.deletes)
        sizes = [(key, len(blob)) for key, blob in record.puts.items()]
        self._take_places(self._name, self._size + len(data) - blobs, sizes)
        self._size += len(data)
        self._bytes += len(data)

    def _failed(self, error: OSError) -> LogFailed | CheckpointError:
        if not self.directory.is_dir():
            return CheckpointError(
                "the log of epochs was deleted, or moved away, so nothing is acked",
                at=str(self.directory),
                hint="bring it back and submit with --resume, or begin anew with --fresh",
                code="checkpoint-changed",
            )
        return LogFailed(
            f"the log of epochs cannot be written, so nothing is acked: {words_of(error)}",
            at=str(self.directory),
            hint="make room there and start again: it resumes from its last committed epoch",
        )

    def close(self) -> None:
        """Wait for a compaction in work, and close."""
        if self._compaction is not None:
            self._compaction.join()
            with suppress(OSError):  # what it replaces is removed by the next start
                self._finish_compaction(self._compaction)
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return self._bytes

    @property
    def saved_bytes(self) -> Iterator[tuple[Key, int]]:
        """The size of each saved value."""
        return ((key, place.size) for key, place in self._index.items())

    def _take_places(self, file: str, at: int, sizes: list[tuple[Key, int]]) -> None:
        for key, size in sizes:
            self._index[key] = Place(file, at, size)
            at += size

    def _drop(self, keys: Collection[Key]) -> None:
        for key in keys:
            self._index.pop(key, None)

    def _open_segment(self, epoch: int, path: Path | None = None) -> None:
        path = path or self.directory / f"{epoch:020d}.log"
        self._file = FileIO(path, "a")
        self._name, self._size = path.name, path.stat().st_size
        _sync_directory(self.directory)

    # -- compaction ---------------------------------------------------------------------------

    def _tend(self, committed: Committed) -> None:
        """Begin a compaction if it is due, or take over one that is done."""
        if self._compaction is not None:
            if not self._compaction.is_alive():
                self._finish_compaction(self._compaction)
            return
        if self._bytes - self._base <= max(self._compact_bytes, self._base):
            return  # so a snapshot is paid for by as much that was written since the one before
        assert self._file is not None
        self._file.close()
        self._open_segment(committed.epoch + 1)
        state = pickle.dumps(committed, protocol=5)
        self._compaction = _Compaction(self.directory, committed.epoch, state, dict(self._index))
        self._compaction.start()

    def _finish_compaction(self, compaction: _Compaction) -> None:
        self._compaction = None
        if compaction.failure is not None:  # the log is whole without it; the next try may do
            self._base = self._bytes
            return
        for key, (before, place) in compaction.moved.items():
            if self._index.get(key) is before:
                self._index[key] = place
        for path in self.directory.iterdir():
            is_old = path.stem.isdigit() and int(path.stem) <= compaction.epoch
            if is_old and path.name != compaction.path.name:
                path.unlink()
        self._bytes = sum(path.stat().st_size for path in self.directory.iterdir())
        self._base = compaction.path.stat().st_size


class _Compaction(threading.Thread):
    """Writes a snapshot of what lives. It reads files that nobody changes any more."""

    def __init__(
        self, directory: Path, epoch: int, committed: bytes, index: Mapping[Key, Place]
    ) -> None:
        super().__init__(name="topo-compaction", daemon=True)
        self.epoch = epoch
        self.path = directory / f"{epoch:020d}.snapshot"
        self.moved: dict[Key, tuple[Place, Place]] = {}
        self.failure: Exception | None = None
        self._directory = directory
        self._committed = committed
        self._index = index

    def run(self) -> None:
        try:
            self._write()
        except Exception as error:
            self.failure = error
            with suppress(OSError):
                self.path.with_suffix(".tmp").unlink()

    def _write(self) -> None:
        # By file and place, so that values are read in the order in which they lie.
        entries = sorted(self._index.items(), key=lambda entry: (entry[1].file, entry[1].at))
        sizes = [(key, place.size) for key, place in entries]
        start = start_of((self._committed, sizes))
        size = len(start) + sum(place.size for _, place in entries)
        unfinished = self.path.with_suffix(".tmp")
        with unfinished.open("wb") as file:
            file.write(bytes(HEAD_BYTES))
            file.write(start)
            checksum, at = zlib.crc32(start), HEAD_BYTES + len(start)
            for (key, place), blob in zip(entries, self._values(entries), strict=True):
                file.write(blob)
                checksum = zlib.crc32(blob, checksum)
                self.moved[key] = (place, Place(self.path.name, at, place.size))
                at += place.size
            file.seek(0)
            file.write(head_of(self.epoch, size, checksum))
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(self.path)
        _sync_directory(self._directory)

    def _values(self, entries: list[tuple[Key, Place]]) -> Iterator[bytes]:
        name, file = "", None
        try:
            for _, place in entries:
                if place.file != name:
                    if file is not None:
                        file.close()
                    name, file = place.file, (self._directory / place.file).open("rb", _COPY_BYTES)
                assert file is not None
                file.seek(place.at)
                blob = file.read(place.size)
                if len(blob) < place.size:
                    raise OSError(f"{place.file} is shorter than it was")
                yield blob
        finally:
            if file is not None:
                file.close()


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
