"""The number of the last committed epoch, beside the log: what a log must not end before.

A log that was cut ends like one whose last record was torn by a death: in half a record, or between
two. The mark is written after each epoch, so a process that dies leaves a log that reaches the mark
or one epoch further. If it does not reach it, something else has cut the log, and acked epochs are
missing.

A machine that loses its power may lose the end of the log and not the mark, unless each commit
waits for the disk. So the mark has the id of the machine's start (`boot_id`): after another one the
log may end earlier, and the driver says how many epochs were lost.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from uuid import UUID

_MARK = struct.Struct("<4sQB16s")
_CHECK = struct.Struct("<I")
MAGIC = b"tMk1"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NO_BOOT = bytes(16)


class Mark:
    """The mark of one log. One thread calls it."""

    def __init__(self, path: Path, *, sync: bool) -> None:
        self._path = path
        self._sync = sync
        self._boot = _boot()
        self._file: int | None = None

    def read(self) -> tuple[int, bool]:
        """Return the marked epoch, and whether the log is sure to reach it; (0, False) if none."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return 0, False
        if len(data) != _MARK.size + _CHECK.size:
            return 0, False
        mark = data[: _MARK.size]
        magic, epoch, was_synced, boot = _MARK.unpack(mark)
        if magic != MAGIC or _CHECK.unpack_from(data, _MARK.size) != (zlib.crc32(mark),):
            return 0, False
        same_boot = boot == self._boot != _NO_BOOT
        return epoch, bool(was_synced) or same_boot

    def write(self, epoch: int) -> None:
        """Note that the log has this epoch."""
        if self._file is None:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        mark = _MARK.pack(MAGIC, epoch, self._sync, self._boot)
        os.pwrite(self._file, mark + _CHECK.pack(zlib.crc32(mark)), 0)

    def close(self) -> None:
        """Close its file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _boot() -> bytes:
    try:
        return UUID(_BOOT_ID.read_text().strip()).bytes
    except (OSError, ValueError):
        return _NO_BOOT
