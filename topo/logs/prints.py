"""Standard streams of processes that run tasks: each line that is printed is a log record."""

from __future__ import annotations

import codecs
import io
import logging
import sys
import threading
from contextlib import suppress
from typing import Any, TextIO

LONGEST_CHARS = 8000
"""Of a message that travels, and of a printed line."""


def cut(text: str, more: int = 0) -> str:
    """Cut the text to the maximum; `more` characters of it were cut before."""
    more += max(0, len(text) - LONGEST_CHARS)
    return f"{text[:LONGEST_CHARS]}... ({more:,} characters more)" if more else text


def print_by_line() -> None:
    """Have each printed line leave this process at once, whatever its standard streams are.

    A process that runs tasks ends when its driver does, by a signal at the latest: what waits in a
    buffer, as Python has it in front of pipes and files, would never be seen.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)


def flush_prints() -> None:
    """Let the start of a line leave this process too."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it any more, or it is closed
            stream.flush()


class _PartialLine(threading.local):
    """The start of a line that a thread has printed so far."""

    text = ""
    more = 0  # characters, beyond those that are kept
    is_over = False  # a carriage return came last: what comes next takes the line's place
    is_logged = False  # just now, by handlers that may print

    def add(self, text: str) -> None:
        """Add text to the line; of a progress bar, only its latest state remains."""
        state = text.rstrip("\r")
        if "\r" in state or (state and self.is_over):
            self.text, self.more = "", 0
        self.is_over = len(state) < len(text) or (self.is_over and not state)
        state = state.rpartition("\r")[2]
        room = LONGEST_CHARS - len(self.text)
        self.text += state[:room]
        self.more += max(0, len(state) - room)

    def take(self) -> str:
        line = cut(self.text, self.more)
        self.text, self.more, self.is_over = "", 0, False
        return line


class Prints(io.TextIOBase):
    """A standard stream whose lines are log records.

    It has all that code asks of `sys.stdout`, whose type it expects to be a TextIOWrapper.
    """

    mode = "w"
    line_buffering = True
    write_through = True

    def __init__(
        self, logger: logging.Logger, level: int, also: TextIO | None, handle: int
    ) -> None:
        self._logger = logger
        self._level = level
        self._also = also
        self._handle = handle
        self._begun = _PartialLine()
        self.name = f"<{logger.name}>"
        self.buffer = PrintedBytes(self)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "backslashreplace"

    def reconfigure(self, **options: object) -> None:
        """Do nothing: a line is kept when it ends, whatever it is made of."""

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Stay open: the stream belongs to the process, and other tasks print to it."""
        self.flush()

    def write(self, text: str) -> int:
        begun = self._begun
        *lines, rest = text.split("\n")
        if not begun.is_logged:  # else a handler that prints what is logged would never end
            for line in lines:
                begun.add(line)
                self._log(begun.take())
            begun.add(rest)
        if self._also is not None:
            self._pass_on(text, self._also)
        return len(text)

    def _log(self, line: str) -> None:
        self._begun.is_logged = True
        try:
            self._logger.log(self._level, "%s", line)
        finally:
            self._begun.is_logged = False

    @staticmethod
    def _pass_on(text: str, to: TextIO) -> None:
        with suppress(OSError, ValueError):  # full, or closed: the lines are kept all the same
            try:
                to.write(text)
            except UnicodeEncodeError as error:
                to.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))

    def flush(self) -> None:
        if self._also is not None:
            with suppress(OSError, ValueError):
                self._also.flush()

    def fileno(self) -> int:
        """Return what a program that is started may write to: the process's own stream."""
        return self._handle if self._also is None else self._also.fileno()


class PrintedBytes(io.RawIOBase):
    """The bytes below a standard stream: they are lines of text as well."""

    def __init__(self, prints: Prints) -> None:
        self._prints = prints
        self._decoders = threading.local()  # each thread's lines are its own

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        decoder = getattr(self._decoders, "utf_8", None)
        if decoder is None:
            decoder = self._decoders.utf_8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._prints.write(decoder.decode(bytes(data)))
        return memoryview(data).nbytes

    def flush(self) -> None:
        self._prints.flush()

    def close(self) -> None:
        """Stay open, as the stream does."""
        self.flush()

    def fileno(self) -> int:
        return self._prints.fileno()
