"""Capture of the user code's log records and prints, as JSON lines that `topo logs` reads.

If tasks run beside the driver, their process writes a file of its own; TOPO_LOG_DIR, which the
driver of a submitted topology sets, names the directory. On a cluster the lines are collected, in
bounded amounts, and travel to the driver with the report of an execution; the driver writes the
same files. With TOPO_LOG_FORMAT=json, which `topo run` sets, the lines go to standard error, where
the log of a container or a service begins. The task that logged is found on the stack at the time
of logging, so that code that does not log costs nothing.
"""

from __future__ import annotations

import json
import logging
import os
import reprlib
import socket
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import IO, Any, TextIO, TypeAlias

from topo.errors import printable
from topo.logs.prints import Prints, cut, print_by_line

LOG_DIR = "TOPO_LOG_DIR"
LOG_LEVEL = "TOPO_LOG_LEVEL"
LOG_FORMAT = "TOPO_LOG_FORMAT"
AS_JSON = "json"
_CHATTY = ("py4j", "pyspark", "grpc", "asyncio", "urllib3")
Line: TypeAlias = dict[str, Any]
_MOST_BYTES = 16 << 20
"""Of one file; then it becomes the `.1` of its name, in the place of the one before."""
_AROUND_BYTES = 150
"""What a line takes beside its message, about."""


class LogSource:
    """An object whose methods run the code that logs: a task, by which its lines are labelled."""

    component_id: str
    id: int


def keep_logs(source: str) -> None:
    """Write this process's log records and prints to a file, which `source` names."""
    directory = os.environ.get(LOG_DIR)
    if directory:
        _listen(JsonLines(Path(directory) / f"{source}.jsonl"))
    elif _is_streamed():
        _listen(StreamedLines())
    else:
        print_by_line()
        show_logs()


def show_logs() -> None:
    """Write this process's log records to its standard error, if TOPO_LOG_LEVEL says from which."""
    root = logging.getLogger()
    is_there = any(isinstance(handler, _Shown | StreamedLines) for handler in root.handlers)
    if LOG_LEVEL in os.environ and not is_there:
        root.addHandler(StreamedLines() if _is_streamed() else _Shown())
        _set_level(root)
        for name in _CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)


def are_wanted() -> bool:
    """Return True if the lines of other machines are to come to this process."""
    return bool(os.environ.get(LOG_DIR)) or _is_streamed()


def _is_streamed() -> bool:
    return os.environ.get(LOG_FORMAT) == AS_JSON


def collect_logs(most_bytes: int) -> None:
    """Collect this process's log records and prints for `collected_lines`, up to `most_bytes`."""
    global _collecting
    if _collecting is None:
        _collecting = Collecting(most_bytes)
        out, err = sys.stdout, sys.stderr
        _listen(_collecting, out, err)  # what is printed is in Spark's own logs as well, and so are
        logging.getLogger().addHandler(_Warnings(err))  # warnings, as without this
    _collecting.most_bytes = most_bytes


def collected_lines() -> list[Line]:
    """Return the lines collected since the last call."""
    return _collecting.take() if _collecting else []


class Lines(logging.Handler):
    """A log handler whose own failures never reach the code that logs."""

    def __init__(self) -> None:
        super().__init__()
        self._has_failed = False

    def keep(self, line: Line) -> None:
        raise NotImplementedError

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.keep(line_of(record))
        except RecursionError:  # the code's own; what is done about it would only come to more
            raise
        except Exception:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Report a failure once, bypassing `sys.stderr`, whose lines would come here again."""
        if self._has_failed:
            return
        self._has_failed = True
        with suppress(Exception):
            print("a line could not be kept; more such are not told of", file=sys.__stderr__)
            traceback.print_exc(file=sys.__stderr__)


@contextmanager
def shown_logs(level: str, *, as_json: bool = False) -> Iterator[None]:
    """Show log records from a level on while this lasts, also those of processes started in it."""
    root = logging.getLogger()
    handlers, before = root.handlers[:], root.level
    variables = {name: os.environ.get(name) for name in (LOG_LEVEL, LOG_FORMAT)}
    os.environ[LOG_LEVEL] = variables[LOG_LEVEL] or level
    if as_json:
        os.environ[LOG_FORMAT] = AS_JSON
    show_logs()
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(before)
        for name, value in variables.items():
            os.environ.pop(name, None)  # the user's code may have cleared it
            if value is not None:
                os.environ[name] = value


class _Shown(logging.StreamHandler[TextIO]):
    """A handler that shows records to the person at the terminal, with the task that logged."""

    def __init__(self) -> None:
        super().__init__()

    def format(self, record: logging.LogRecord) -> str:
        component, task = _working()
        where = f" {component}[{task}]" if component else ""
        return printable(f"{record.levelname}{where} {record.name}: {_text_of(record)}")


class Collecting(Lines):
    """A store of lines until they are taken, up to a number of bytes; it counts the others."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__()
        self.most_bytes = most_bytes
        self._lines: list[Line] = []
        self._size = self._dropped = 0

    def keep(self, line: Line) -> None:
        message = line["message"] = cut(line["message"])
        size = len(message) + _AROUND_BYTES
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


class JsonLines(Lines):
    """A handler that writes records to a file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = LineFile(path)

    def keep(self, line: Line) -> None:
        self._file.write(line)

    def close(self) -> None:
        self._file.close()
        super().close()


class StreamedLines(Lines):
    """A handler that writes records to standard error, each by one call of the system.

    Several processes share the stream, and a pipe keeps lines of up to 4 KiB whole.
    """

    def keep(self, line: Line) -> None:
        write_streamed([line])


def write_streamed(lines: Iterable[Line]) -> None:
    """Write lines to standard error, past `sys.stderr`, whose prints may be records themselves."""
    for line in lines:
        text = json.dumps(line, ensure_ascii=False)
        with suppress(OSError):  # nobody reads it any more
            os.write(2, text.encode(errors="backslashreplace") + b"\n")


class _Warnings(logging.StreamHandler[TextIO]):
    """A handler for warnings, on a stream that may be closed."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.setLevel(logging.WARNING)

    def format(self, record: logging.LogRecord) -> str:
        return _text_of(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Do nothing: the record has been collected."""


class LineFile:
    """A file of JSON lines of bounded size, unless `grows` says otherwise.

    A full disk must not stop a topology that does not need it: lines are dropped until there is
    room again.
    """

    def __init__(self, path: Path, *, grows: bool = False) -> None:
        self._path = path
        self._grows = grows
        self._file: IO[bytes] | None = None
        self._size = 0
        self._is_cut = False  # a full disk has taken but a part of the last line

    def write(self, line: Line) -> None:
        text = json.dumps(line, ensure_ascii=False)
        with suppress(OSError):
            self._write(text.encode(errors="backslashreplace") + b"\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> IO[bytes]:
        self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115
        self._size = self._file.tell()
        return self._file

    def _write(self, line: bytes) -> None:
        file = self._file or self._open()
        if not self._grows and self._size + len(line) > _MOST_BYTES:
            self.close()
            os.replace(self._path, f"{self._path}.1")
            file = self._open()
        if self._is_cut:
            line = b"\n" + line
        written = file.write(line)
        self._size += written
        self._is_cut = written < len(line)


class ReceivedLines:
    """A writer of lines from other machines: one file per slot beside this process's logs, or to
    its standard error.
    """

    def __init__(self, directory: str | None = None) -> None:
        self._directory = directory or os.environ.get(LOG_DIR) or ""
        self._files: dict[str, LineFile] = {}

    def __bool__(self) -> bool:
        """Return True if lines are to be written."""
        return bool(self._directory) or _is_streamed()

    def write(self, source: str, lines: Iterable[Line]) -> None:
        if not self or not lines:
            return
        ordered = sorted(lines, key=lambda line: str(line["time"]))
        if not self._directory:
            write_streamed(ordered)
            return
        if source not in self._files:
            self._files[source] = LineFile(Path(self._directory) / f"{source}.jsonl")
        for line in ordered:
            self._files[source].write(line)

    def close(self) -> None:
        while self._files:
            self._files.popitem()[1].close()


def line_of(record: logging.LogRecord) -> Line:
    """Return a log record as `topo logs` shows it."""
    component, task = getattr(record, "topo_task", None) or _working()
    moment = datetime.fromtimestamp(record.created, UTC)
    return {
        "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname,
        "component": component,
        "task": task,
        "host": socket.gethostname(),
        "logger": record.name,
        "message": _text_of(record),
    }


def _text_of(record: logging.LogRecord) -> str:
    """Return a record's text, or its parts and its place if the text cannot be formatted."""
    try:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
    except RecursionError:
        raise
    except Exception as error:
        place = f"{record.pathname}:{record.lineno}"
        logged = f"{_shown(record.msg)} with {_shown(record.args)}"
        text = f"{place} logged {logged}, which is no message: {_shown(error)}"
    return text.encode(errors="backslashreplace").decode()  # of file names, which may be any bytes


def _shown(value: object) -> str:
    """Return the value's repr, or a substitute if the repr raises."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = 500
    return short.repr(value)


def _listen(handler: logging.Handler, out: TextIO | None = None, err: TextIO | None = None) -> None:
    """Send log records and prints to the handler from now on; prints go to `out`, `err` too."""
    root = logging.getLogger()
    root.addHandler(handler)
    _set_level(root)
    sys.stdout = Prints(logging.getLogger("stdout"), logging.INFO, out, 1)
    sys.stderr = Prints(logging.getLogger("stderr"), logging.WARNING, err, 2)


def _set_level(root: logging.Logger) -> None:
    """Let the root logger pass records from TOPO_LOG_LEVEL on; libraries stay at INFO."""
    level = logging.getLevelNamesMapping().get(os.environ.get(LOG_LEVEL, ""), logging.INFO)
    root.setLevel(min(root.level, level) if root.level else level)
    if level < logging.INFO:
        for name in _CHATTY:
            logging.getLogger(name).setLevel(logging.INFO)


def _working() -> tuple[str, int]:
    """Return the component and task whose code runs, according to the stack, or ("", 0)."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        owner: Any = frame.f_locals.get("self")
        if issubclass(type(owner), LogSource):  # isinstance asks it, which may raise
            return owner.component_id, owner.id
        frame = frame.f_back
    return "", 0
