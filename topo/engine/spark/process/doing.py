"""The word of a slot process on what it is doing, which outlives it.

User code may end its process without an exception: by `os._exit`, a segmentation fault, the kernel
when memory is short. Whoever waits for it then reads here which task it was executing, and how the
process ended, which the driver writes beside it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time

from topo.errors import ending_of
from topo.runtime.task import NOTE_BYTES
from topo.tracking.clock import monotonic

_PATIENCE_SECS = 5.0
_CLOCK_SECS = 0.05
"""By how much times of files may be behind the clock."""


def open_note(path: str) -> mmap.mmap:
    """Return the memory that the slot process at `path` notes its task in.

    A run may end while its slots start: they end quietly if the run's directory is gone.
    """
    starting = f"{_doing(path)}.{os.getpid()}"
    try:
        with open(starting, "w+b") as file:
            file.truncate(NOTE_BYTES)
            note = mmap.mmap(file.fileno(), NOTE_BYTES)
        os.rename(starting, _doing(path))
    except FileNotFoundError:
        raise SystemExit from None
    return note


def note_end(path: str, code: int, why: str = "") -> str:
    """Tell how the process at `path` ended, and in what, and return it.

    To be called before the next is started.
    `why` says it better than the code, if the driver has ended it. It stays until another one ends:
    whoever waits may look late.
    """
    text = _words(why or ending_of(code), doing_now(path))
    with contextlib.suppress(OSError):
        with open(f"{_ended(path)}.new", "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        os.replace(f"{_ended(path)}.new", _ended(path))
        os.unlink(_doing(path))  # or it would pass for what the next process does
    return text


def last_words(path: str, since: float = 0.0) -> str:
    """Return what is known of the process at `path`, which has just ended; "" if nothing is.

    `since` is a wall-clock time at which it was alive.
    """
    doing = doing_now(path)
    deadline = monotonic() + _PATIENCE_SECS
    while not (text := _read_since(_ended(path), since)) and monotonic() < deadline:
        time.sleep(0.02)
    return text or (_words("ended", doing) if doing else "")


def _words(ended: str, doing: str) -> str:
    return f"the slot's process {ended}" + (f" while {doing} was executed" if doing else "")


def doing_now(path: str) -> str:
    """Return which task the process at `path` executes; "" if it is at none."""
    return _read(_doing(path)).rstrip("\0")


def _read_since(path: str, since: float) -> str:
    """Return a file's text; "" if it was written before."""
    try:
        is_old = os.path.getmtime(path) < since - _CLOCK_SECS
    except OSError:
        return ""
    return "" if is_old else _read(path)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(2 * NOTE_BYTES)
    except OSError:
        return ""


def _doing(path: str) -> str:
    return f"{path}.doing"


def _ended(path: str) -> str:
    return f"{path}.ended"
