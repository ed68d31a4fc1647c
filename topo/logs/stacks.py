"""Stacks of a slot's process on demand, which a signal asks for.

`faulthandler` writes them in the signal's handler, in C: a thread that hangs in a library, or that
waits for a lock for ever, is seen like any other, which a handler in Python would not be. Nothing
is spent until somebody asks. The signal is a real-time one, which user code hardly ever takes, and
its file is named after slot and process: whoever asks must know that this very process listens,
since the signal ends any other.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
from contextlib import suppress
from pathlib import Path
from typing import IO

from topo.logs.capture import LOG_DIR

SIGNAL = int(signal.SIGRTMIN) + 9 if hasattr(signal, "SIGRTMIN") else 0
"""0 where there are no such signals: nothing listens then."""
_NAME = re.compile(r"(.+)\.(\d+)\.stacks")
_file: IO[bytes] | None = None  # stays open for as long as the process lives


def write_stacks_on_signal(source: str) -> None:
    """Write the stacks of this process's threads, whenever the signal comes, beside its logs."""
    global _file
    directory = os.environ.get(LOG_DIR)
    if not directory or not SIGNAL:
        return
    for path in listening(Path(directory), source):
        with suppress(OSError):
            path.unlink()  # of the process before
    with suppress(OSError, ValueError):  # the disk is full, or not this process's
        _file = open(Path(directory) / f"{source}.{os.getpid()}.stacks", "ab", buffering=0)  # noqa: SIM115
        faulthandler.register(SIGNAL, _file, all_threads=True)


def listening(directory: Path, source: str) -> dict[Path, int]:
    """Return the files that processes of a source write to, and the processes; some may be dead."""
    processes = {}
    with suppress(OSError):
        for path in directory.iterdir():
            match = _NAME.fullmatch(path.name)
            if match and match[1] == source:
                processes[path] = int(match[2])
    return processes
