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


def open_note(path: str) -> mmap.mmap:
    """Return the memory that the slot process at `path` notes its task in."""
    starting = f"{_doing(path)}.{os.getpid()}"
    with open(starting, "w+b") as file:
        file.truncate(NOTE_BYTES)
        note = mmap.mmap(file.fileno(), NOTE_BYTES)
    os.rename(starting, _doing(path))
    return note


def note_end(path: str, code: int) -> None:
    """Tell how the process at `path` ended; None is known of the next one."""
    with contextlib.suppress(OSError), open(_ended(path), "w") as file:
        file.write(_in_words(code))


def forget_end(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(_ended(path))


def last_words(path: str) -> str:
    """Return what is known of the process at `path`, which has just ended; "" if nothing is."""
    doing = _read(_doing(path)).rstrip("\0")
    deadline = time.monotonic() + _PATIENCE_SECS
    while not (ended := _read(_ended(path))) and time.monotonic() < deadline:
        time.sleep(0.02)
    while_ = f" while {doing} was executed" if doing else ""
    return f"the slot's process {ended or 'ended'}{while_}" if doing or ended else ""


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
            return file.read(NOTE_BYTES)
    except OSError:
        return ""


def _doing(path: str) -> str:
    return f"{path}.doing"


def _ended(path: str) -> str:
    return f"{path}.ended"
