"""What user code logs and prints, kept as JSON lines that `topo logs` reads.

Where tasks run beside the driver, their process writes a file of its own; TOPO_LOG_DIR, which the
driver of a submitted topology sets, names the directory. On a cluster the lines are collected, in
bounded amounts, and travel to the driver with what an execution reports; the driver writes the
same files. Which task it was that logged is read off the stack when something is logged, so that it
costs nothing when nothing is.
"""

from __future__ import annotations

import io
import json
import logging
import os
import socket
import sys
import threading
import traceback
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, TextIO, TypeAlias

LOG_DIR = "TOPO_LOG_DIR"
Line: TypeAlias = dict[str, Any]
_MOST_BYTES = 16 << 20
"""Of one file; then it becomes the `.1` of its name, in the place of the one before."""
_LONGEST_CHARS = 8000
"""Of a message that travels."""
_AROUND_BYTES = 150
"""What a line takes beside its message, about."""


def keep_logs(source: str) -> None:
    """Keep what this process logs and prints from now on; `source` names its file."""
    directory = os.environ.get(LOG_DIR)
    if directory:
        _listen(JsonLines(Path(directory) / f"{source}.jsonl"))


def collect_logs(most_bytes: int) -> None:
    """Collect what this process logs and prints, for `collected_lines`; no more at a time."""
    global _collecting
    if _collecting is None:
        _collecting = Collecting(most_bytes)
        out, err = sys.stdout, sys.stderr
        _listen(_collecting, out, err)  # what is printed is in Spark's own logs as well, and so are
        warnings = logging.StreamHandler(err)  # warnings, as without this
        warnings.setLevel(logging.WARNING)
        logging.getLogger().addHandler(warnings)
    _collecting.most_bytes = most_bytes


def collected_lines() -> list[Line]:
    """What was collected since this was last called."""
    return _collecting.take() if _collecting else []


class Collecting(logging.Handler):
    """Keeps lines until they are taken, up to so many bytes; counts those beyond."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__()
        self.most_bytes = most_bytes
        self._lines: list[Line] = []
        self._size = self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        line = line_of(record)
        message = line["message"]
        if len(message) > _LONGEST_CHARS:
            more = len(message) - _LONGEST_CHARS
            line["message"] = f"{message[:_LONGEST_CHARS]}... ({more:,} characters more)"
        size = len(line["message"]) + _AROUND_BYTES
        if self._size + size > self.most_bytes:
            self._dropped += 1
            return
        self._size += size
        self._lines.append(line)

    def take(self) -> list[Line]:
        self.acquire()
        try:
            taken, self._lines = self._lines, []
            dropped, self._dropped = self._dropped, 0
            self._size = 0
        finally:
            self.release()
        if dropped:
            lines = "1 line" if dropped == 1 else f"{dropped:,} lines"
            taken.append(line_of(_warning(f"{lines} dropped: too much was logged in one batch")))
        return taken


def _warning(text: str) -> logging.LogRecord:
    return logging.LogRecord("topo.logs", logging.WARNING, __file__, 0, text, None, None)


_collecting: Collecting | None = None


class JsonLines(logging.Handler):
    """Writes records to a file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = LineFile(path)

    def emit(self, record: logging.LogRecord) -> None:
        self._file.write(line_of(record))

    def close(self) -> None:
        self._file.close()
        super().close()


class LineFile:
    """A file of JSON lines, which is kept from growing without end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open()

    def write(self, line: Line) -> None:
        with suppress(OSError):  # a full disk must not stop a topology that does not need it
            self._write(json.dumps(line, ensure_ascii=False).encode() + b"\n")

    def close(self) -> None:
        self._file.close()

    def _open(self) -> None:
        self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115
        self._size = self._file.tell()

    def _write(self, line: bytes) -> None:
        if self._size + len(line) > _MOST_BYTES:
            self._file.close()
            os.replace(self._path, f"{self._path}.1")
            self._open()
        self._file.write(line)
        self._size += len(line)


class ReceivedLines:
    """Writes lines that came from other machines, a file a slot, where this process keeps logs."""

    def __init__(self, directory: str | None = None) -> None:
        self._directory = directory or os.environ.get(LOG_DIR) or ""
        self._files: dict[str, LineFile] = {}

    def __bool__(self) -> bool:
        """Whether lines are wanted."""
        return bool(self._directory)

    def write(self, source: str, lines: Iterable[Line]) -> None:
        if not self or not lines:
            return
        if source not in self._files:
            try:
                self._files[source] = LineFile(Path(self._directory) / f"{source}.jsonl")
            except OSError:  # as for a full disk
                return
        for line in sorted(lines, key=lambda line: str(line["time"])):
            self._files[source].write(line)

    def close(self) -> None:
        while self._files:
            self._files.popitem()[1].close()


def line_of(record: logging.LogRecord) -> Line:
    """A log record as `topo logs` shows it."""
    component, task = _working()
    message = record.getMessage()
    if record.exc_info:
        message += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
    moment = datetime.fromtimestamp(record.created, UTC)
    return {
        "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname,
        "component": component,
        "task": task,
        "host": socket.gethostname(),
        "logger": record.name,
        "message": message,
    }


def _listen(handler: logging.Handler, out: TextIO | None = None, err: TextIO | None = None) -> None:
    """Hand it what is logged from now on, and what is printed, which goes to `out`, `err` too."""
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(min(root.level, logging.INFO) if root.level else logging.INFO)
    sys.stdout = _Prints(logging.getLogger("stdout"), logging.INFO, out)
    sys.stderr = _Prints(logging.getLogger("stderr"), logging.WARNING, err)


class _Prints(io.TextIOBase):
    """A standard stream whose lines are log records."""

    def __init__(self, logger: logging.Logger, level: int, also: TextIO | None) -> None:
        self._logger = logger
        self._level = level
        self._also = also
        self._begun = threading.local()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        begun: str = getattr(self._begun, "text", "")
        *lines, self._begun.text = (begun + text).split("\n")
        for line in lines:
            self._logger.log(self._level, "%s", line)
        if self._also is not None:
            self._also.write(text)
        return len(text)

    def flush(self) -> None:
        if self._also is not None:
            self._also.flush()

    def fileno(self) -> int:
        if self._also is None:
            return super().fileno()
        return self._also.fileno()


def _working() -> tuple[str, int]:
    """The component and task whose code runs, as the stack tells; ("", 0) if it is none's."""
    from topo.task.task import Task

    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, Task):
            return owner.component_id, owner.id
        frame = frame.f_back
    return "", 0
