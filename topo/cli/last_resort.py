"""The end of a process whose code keeps Python's own lock, by Ctrl-C.

The inline engine runs user code beside the thread that answers Ctrl-C. Code that does not let go of
the interpreter (a regular expression that backtracks for ever, a power of huge numbers) keeps that
thread from running at all, and with it every handler of signals. Python's C code still notes each
signal in a pipe; a small process of its own reads it, and kills this one at the third.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress

_WATCH = """
import os, select, signal, sys
process, most, patience = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
count = 0
while count < most:
    noted = os.read(0, 1)
    if not noted:
        sys.exit()
    count += noted[0] in (signal.SIGINT, signal.SIGTERM)
while select.select([0], [], [], patience)[0]:
    if not os.read(0, 1):
        sys.exit()
if os.getppid() == process:
    os.write(2, b"killed: the topology's code does not let go of the interpreter\\n")
    os.kill(process, signal.SIGKILL)
"""
_PATIENCE_SECS = 1.0
"""How long the process may take to end by itself after the last signal."""


class LastResort:
    """The process that kills this one at the signal number `most`, unless it ends by itself.

    To be entered and left by the main thread.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._watcher: subprocess.Popen[bytes] | None = None
        self._before = -1
        self._noted = -1

    def __enter__(self) -> LastResort:
        read, self._noted = os.pipe()
        os.set_blocking(self._noted, False)
        arguments = map(str, (os.getpid(), self._most, _PATIENCE_SECS))
        with suppress(OSError):  # of memory or processes: it goes without
            self._watcher = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _WATCH, *arguments],
                stdin=read,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C is for all of a terminal's processes
            )
        os.close(read)
        self._before = signal.set_wakeup_fd(self._noted, warn_on_full_buffer=False)
        return self

    def __exit__(self, *exception: object) -> None:
        signal.set_wakeup_fd(self._before)
        os.close(self._noted)
        if self._watcher is not None:
            self._watcher.kill()  # a child that user code has forked may hold the pipe open
            self._watcher.wait()
