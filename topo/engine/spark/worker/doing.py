"""The word of a slot process on what it is doing, which outlives it.

User code may end its process without an exception: by `os._exit`, a segmentation fault, the kernel
when memory is short. Whoever waits for it then reads here which task it was executing, and how the
process ended, which the driver writes beside it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import time

from topo.runtime.task import NOTE_BYTES

_PATIENCE_SECS = 5.0
_CLOCK_SECS = 0.05
"""By how much times of files may be behind the clock."""


def open_note(path: str) -> mmap.mmap:
    """Return the memory that the slot process at `path` notes its task in."""
    starting = f"{_doing(path)}.{os.getpid()}"
    with open(starting, "w+b") as file:
        file.truncate(NOTE_BYTES)
        note = mmap.mmap(file.fileno(), NOTE_BYTES)
    os.rename(starting, _doing(path))
    return note


def note_end(path: str, code: int) -> None:
    """Tell how the process at `path` ended, and in what; to be called before the next is started.

    It stays until another one ends: whoever waits may look late.
    """
    text = _words(_in_words(code), _doing_now(path))
    with contextlib.suppress(OSError):
        with open(f"{_ended(path)}.new", "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        os.replace(f"{_ended(path)}.new", _ended(path))


def last_words(path: str, since: float = 0.0) -> str:
    """Return what is known of the process at `path`, which has just ended; "" if nothing is.

    `since` is a wall-clock time at which it was alive.
    """
    doing = _doing_now(path)
    deadline = time.monotonic() + _PATIENCE_SECS
    while not (text := _read_since(_ended(path), since)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return text or (_words("ended", doing) if doing else "")


def _words(ended: str, doing: str) -> str:
    return f"the slot's process {ended}" + (f" while {doing} was executed" if doing else "")


def _doing_now(path: str) -> str:
    return _read(_doing(path)).rstrip("\0")


def _read_since(path: str, since: float) -> str:
    """Return a file's text; "" if it was written before."""
    try:
        is_old = os.path.getmtime(path) < since - _CLOCK_SECS
    except OSError:
        return ""
    return "" if is_old else _read(path)


def _in_words(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}"


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
