"""What user code logs and prints, kept as JSON lines that `topo logs` reads.

Active where TOPO_LOG_DIR names a directory, which the driver of a submitted topology sets for the
processes that hold component instances. Which task it was that logged is read off the stack when
something is logged, so that it costs nothing when nothing is.
"""

from __future__ import annotations

import io
import json
import logging
import os
import socket
import sys
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

LOG_DIR = "TOPO_LOG_DIR"
_MOST_BYTES = 16 << 20
"""Of one file; then it becomes the `.1` of its name, in the place of the one before."""


def keep_logs(source: str) -> None:
    """Keep what this process logs and prints from now on; `source` names its file."""
    directory = os.environ.get(LOG_DIR)
    if not directory:
        return
    handler = JsonLines(Path(directory) / f"{source}.jsonl")
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(min(root.level, logging.INFO) if root.level else logging.INFO)
    sys.stdout = _Prints(logging.getLogger("stdout"), logging.INFO)
    sys.stderr = _Prints(logging.getLogger("stderr"), logging.WARNING)


class JsonLines(logging.Handler):
    """Writes records to a file, which it keeps from growing without end."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._host = socket.gethostname()
        self._open()

    def emit(self, record: logging.LogRecord) -> None:
        component, task = _working()
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        moment = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "component": component,
            "task": task,
            "host": self._host,
            "logger": record.name,
            "message": message,
        }
        with suppress(OSError):  # a full disk must not stop a topology that does not need it
            self._write(json.dumps(line, ensure_ascii=False).encode() + b"\n")

    def close(self) -> None:
        self._file.close()
        super().close()

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


class _Prints(io.TextIOBase):
    """A standard stream whose lines are log records."""

    def __init__(self, logger: logging.Logger, level: int) -> None:
        self._logger = logger
        self._level = level
        self._begun = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._logger.log(self._level, "%s", line)
        return len(text)


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
