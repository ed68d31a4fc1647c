"""The log of epochs: what makes a commit durable, and what a run resumes from.

One record an epoch holds what changed in saved state, what the ledger was told, and when. The log
is a directory of segments, each named after its first epoch, and of at most one snapshot, which
replaces all epochs up to its own. One thread of the driver that owns the checkpoint writes. A
record is one write, so a process that dies leaves whole records and a torn one at the very end.

A record carries checksums of its head and of its body. Damage at the end of the last segment, with
no valid record behind it, is what a death in the middle of a write leaves: it is cut off. Damage
anywhere else is another thing: epochs behind it were acked, so the log is refused. So is one that
ends before the epoch that was marked as committed (see `mark`).

Two drivers may write for a moment: one that was suspended comes back when another has its log. The
other one was written down as the owner before it read, and an epoch counts once its driver has
looked at the owner's record *behind* the write. So what the first one has committed was read by the
other one, and what it writes later is told to nobody. Each start begins a segment of its own, in a
new file; a segment ends where the next one begins, whatever is written behind that.

Values stay in the files. What is in memory is where each one lies, and reading them back is for the
start of a run. When as much was written since the last snapshot as that has bytes, and not less
than 16 MB, a thread copies what lives to another one, while epochs go on into the next segment.
"""

from __future__ import annotations

import logging
import os
import threading
import zlib
from collections.abc import Callable, Collection
from contextlib import suppress
from io import FileIO
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO

from topo.engine.spark.realtime.epochs import Committed, EpochRecord, Key
from topo.engine.spark.realtime.mark import Mark
from topo.engine.spark.realtime.records import (
    EPOCH,
    HEAD_BYTES,
    SNAPSHOT,
    Place,
    Places,
    format_of,
    head_of,
    is_torn,
    pack_record,
    pieces_of,
    read_log,
    read_record,
    start_of,
    unpack_record,
)
from topo.errors import CheckpointError, EngineError, words_of
from topo.systems import sync_data

COMPACT_BYTES = 16 << 20
_MARK = "committed"
_ANOTHER_COPY = "bring back a copy of the checkpoint, or start with a fresh one"

log = logging.getLogger("topo.spark")


class LogFailed(EngineError):
    """The log of epochs cannot be written: nothing more is acked."""

    code = "epoch-log"


class EpochStore:
    """The log of one checkpoint. One thread calls it; compaction has a thread of its own.

    `sync` makes each commit wait for the disk, so that it outlives the machine and not only the
    process. `confirm` raises a CheckpointError once the log is another driver's.
    """

    def __init__(
        self,
        directory: Path,
        *,
        sync: bool = False,
        compact_bytes: int = COMPACT_BYTES,
        confirm: Callable[[], None] = lambda: None,
    ) -> None:
        self.directory = directory
        self._sync = sync
        self._confirm = confirm
        self._compact_bytes = compact_bytes
        self._index: dict[Key, Place] = {}
        self._bytes = 0  # of all files
        self._base = 0  # of the snapshot among them
        self._file: FileIO | None = None
        self._name = ""
        self._size = 0
        self._compaction: _Compaction | None = None
        self._failure: LogFailed | CheckpointError | None = None
        self._mark = Mark(directory / _MARK, sync=sync)

    @property
    def is_begun(self) -> bool:
        """True iff there is a log, though perhaps without an epoch."""
        return any(path.suffix in (".log", ".snapshot") for path in self._paths())

    def _paths(self) -> list[Path]:
        try:
            return sorted(self.directory.iterdir())
        except FileNotFoundError:
            return []

    # -- recovery -----------------------------------------------------------------------------

    def recover(self, committed: Committed) -> Committed:
        """Read what is there into `committed`, which is new; cut off a torn end."""
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            return self._recover(committed)
        except BaseException:
            self.close()
            raise

    def _recover(self, committed: Committed) -> Committed:
        # Any may be gone: a driver before, which stood still, renames or removes it meanwhile.
        for path in self.directory.glob("*.tmp"):
            path.unlink(missing_ok=True)
        snapshots = sorted(self.directory.glob("*.snapshot"))
        if snapshots:
            self._read_snapshot(snapshots[-1], committed)
            for path in snapshots[:-1]:
                path.unlink(missing_ok=True)
        segments = sorted(self.directory.glob("*.log"))
        for path in list(segments):
            if not path.stem.isdigit():
                raise self._refused(path, 0, "this is no segment of topo's")
            if snapshots and int(path.stem) <= int(snapshots[-1].stem):
                # Compaction begins a segment behind its snapshot, so all of it is in there.
                path.unlink(missing_ok=True)
                segments.remove(path)
        for path, following in zip_longest(segments, segments[1:]):
            until = int(following.stem) if following else None
            end = self._read_segment(path, committed, until)
        self._check_reach(committed.epoch)
        if segments:
            self._cut_off(segments[-1], end, committed.epoch)
        # Without an epoch that counts; a driver before, which knows of none, may have it open.
        self._path_from(committed.epoch + 1).unlink(missing_ok=True)
        self._open_segment(committed.epoch + 1)
        self._mark.write(committed.epoch)
        return committed

    @property
    def tasks(self) -> set[int]:
        """The tasks that have saved something."""
        return {task for task, _ in self._index}

    def places(self, tasks: Collection[int]) -> Places:
        """Return where the saved values of these tasks are, in the files of the directory.

        They stay there until the next epoch is appended.
        """
        return {key: place for key, place in self._index.items() if key[0] in tasks}

    def _read_snapshot(self, path: Path, committed: Committed) -> None:
        with path.open("rb") as file:
            size = path.stat().st_size
            record = read_record(file, 0, SNAPSHOT)
            if record is None:
                self._check_format(file, path)
        if record is None or record.end != size:
            raise self._refused(path, record.end if record else 0, "the snapshot is damaged")
        data, sizes = record.meta
        self._take_places(path.name, record.blobs_at, sizes)
        self._base = size
        self._bytes += size
        committed.take_data(data)

    def _check_format(self, file: BinaryIO, path: Path) -> None:
        """Raise a CheckpointError if a snapshot is of another version of topo."""
        number = format_of(file, SNAPSHOT)
        if format_of(file, EPOCH):
            number = "1"
        mine = chr(SNAPSHOT[-1])
        if number and number != mine:
            raise CheckpointError(
                f"the log of epochs has a snapshot of format {number}; this topo reads {mine}",
                at=str(path),
                hint="resume with the version of topo that wrote it, or start with a fresh "
                "checkpoint",
            )

    def _read_segment(self, path: Path, committed: Committed, until: int | None) -> int:
        """Apply the epochs of a segment, which `until` is behind; return where they end."""
        first = int(path.stem)
        if first > committed.epoch + 1:
            raise self._refused(path, 0, f"epoch {first} follows epoch {committed.epoch}")
        with path.open("rb") as file:
            size, end = path.stat().st_size, 0
            for entry in read_log(file):
                if committed.epoch + 1 == until:
                    break  # it is of a driver that did not know yet that there was another one
                if entry.epoch != committed.epoch + 1:
                    wrong = f"epoch {entry.epoch} follows epoch {committed.epoch}"
                    raise self._refused(path, end, wrong)
                record, sizes = unpack_record(entry)
                committed.apply(record)
                self._drop(record.deletes)
                self._take_places(path.name, entry.blobs_at, sizes)
                end = entry.end
            is_over = end == size or committed.epoch + 1 == until
            if not is_over and not (until is None and is_torn(file, end)):
                raise self._refused(path, end, "a record is damaged, and others follow it")
        self._bytes += end
        return end

    def _cut_off(self, path: Path, end: int, epoch: int) -> None:
        """Cut off what a death in the middle of a write has left; the rest is to be on the disk.

        Or a power failure could take its end, and not the segment behind it.
        """
        torn = path.stat().st_size - end
        with path.open("rb+") as file:
            if torn:
                file.truncate(end)
            sync_data(file.fileno())
        if torn:
            words = "%s: the record behind epoch %d was torn, and its %s bytes are cut off"
            log.warning(words, path, epoch, f"{torn:,}")

    def _check_reach(self, epoch: int) -> None:
        """Raise a CheckpointError if the log ends before an epoch that it certainly had."""
        marked, is_sure = self._mark.read()
        lost = marked - epoch
        if lost > 0 and is_sure:
            raise CheckpointError(
                f"the log of epochs was cut: it ends with epoch {epoch}, and epoch {marked} was "
                f"committed, so {_counted(lost)} missing whose messages were acked",
                at=str(self.directory),
                hint=f"{_ANOTHER_COPY}; without the file {_MARK!r} in that directory, it resumes "
                f"from epoch {epoch}",
            )
        if lost > 0:
            log.warning(
                "%s was cut short, as by a power failure: it ends with epoch %d, and %s lost; "
                "topology.epoch.sync keeps that from happening",
                self.directory,
                epoch,
                _counted(lost),
            )

    def _refused(self, path: Path, at: int, why: str) -> CheckpointError:
        return CheckpointError(
            f"the log of epochs cannot be read: {why}",
            at=f"{path}, byte {at}",
            hint=_ANOTHER_COPY,
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
                sync_data(self._file.fileno())
        except OSError as error:
            # After a failed sync nobody knows what is on the disk, so this is final.
            self._failure = self._failed(error)
            with suppress(OSError, ValueError, LogFailed):  # else the next start cuts it off
                self._check_owner()  # another driver may have read all of it
                self._file.truncate(self._size)
            raise self._failure from error
        self._check_owner()
        try:
            self._mark.write(record.epoch)
        except OSError as error:  # the next start finds this epoch whole, and commits it
            self._failure = self._failed(error)
            raise self._failure from error
        blobs = sum(map(len, record.puts.values()))
        self._drop(record.deletes)
        sizes = [(key, len(blob)) for key, blob in record.puts.items()]
        self._take_places(self._name, self._size + len(data) - blobs, sizes)
        self._size += len(data)
        self._bytes += len(data)

    def _check_owner(self) -> None:
        """Raise a CheckpointError if the log is another driver's by now."""
        try:
            self._confirm()
        except CheckpointError as error:
            self._failure = error
            raise
        except OSError as error:  # the next start finds a whole epoch, and commits it
            failure = LogFailed(
                "nobody knows whose the log of epochs is, so nothing is acked: the owner's record "
                f"cannot be read: {words_of(error)}",
                at=str(self.directory.parent),
                hint="see to its file system: it resumes from its last committed epoch",
            )
            self._failure = self._failure or failure
            raise failure from error

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
            with suppress(OSError, CheckpointError):  # the next start removes what it replaces
                self._finish_compaction(self._compaction)
        if self._file is not None:
            self._file.close()
            self._file = None
        self._mark.close()

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return self._bytes

    def _take_places(self, file: str, at: int, sizes: list[tuple[Key, int]]) -> None:
        for key, size in sizes:
            self._index[key] = Place(file, at, size)
            at += size

    def _drop(self, keys: Collection[Key]) -> None:
        for key in keys:
            self._index.pop(key, None)

    def _open_segment(self, epoch: int) -> None:
        path = self._path_from(epoch)
        self._file = FileIO(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666), "a"
        )
        self._name, self._size = path.name, 0
        _sync_directory(self.directory)

    def _path_from(self, epoch: int) -> Path:
        return self.directory / f"{epoch:020d}.log"

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
        if self._size:  # else it begins behind this epoch already
            self._file.close()
            self._open_segment(committed.epoch + 1)
        data = committed.as_data()
        self._compaction = _Compaction(self.directory, committed.epoch, data, dict(self._index))
        self._compaction.start()

    def _finish_compaction(self, compaction: _Compaction) -> None:
        self._compaction = None
        if compaction.failure is not None:  # the log is whole without it; the next try may do
            self._base = self._bytes
            return
        self._check_owner()
        for key, (before, place) in compaction.moved.items():
            if self._index.get(key) is before:
                self._index[key] = place
        for path in self._paths():
            is_old = path.stem.isdigit() and int(path.stem) <= compaction.epoch
            if is_old and path.name != compaction.path.name:
                path.unlink(missing_ok=True)
        self._bytes = sum(path.stat().st_size for path in self._paths())
        self._base = compaction.path.stat().st_size


class _Compaction(threading.Thread):
    """Writes a snapshot of what lives. It reads files that nobody changes any more."""

    def __init__(self, directory: Path, epoch: int, committed: object, index: Places) -> None:
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
        # By file and place, as `pieces_of` reads them.
        entries = sorted(self._index.items(), key=lambda entry: (entry[1], entry[0]))
        sizes = [(key, place.size) for key, place in entries]
        start = start_of((self._committed, sizes))
        size = len(start) + sum(place.size for _, place in entries)
        unfinished = self.path.with_suffix(".tmp")
        with unfinished.open("wb") as file:
            file.write(bytes(HEAD_BYTES))
            file.write(start)
            checksum, at = zlib.crc32(start), HEAD_BYTES + len(start)
            for key, place in entries:
                self.moved[key] = (place, Place(self.path.name, at, place.size))
                at += place.size
            for _, piece in pieces_of(self._directory, self._index):
                file.write(piece)
                checksum = zlib.crc32(piece, checksum)
            file.seek(0)
            file.write(head_of(SNAPSHOT, self.epoch, size, checksum))
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(self.path)
        _sync_directory(self._directory)


def _counted(epochs: int) -> str:
    return "1 epoch is" if epochs == 1 else f"{epochs:,} epochs are"


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
