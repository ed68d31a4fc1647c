"""Child processes of the driver: started out of reach of Ctrl-C, ended with all that they fork.

Whatever the mode, a slot's process is started, told what it is, watched and ended here. It lives no
longer than its standard input, which ends with the driver, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from subprocess import Popen

from topo.engine.spark.process.doing import note_end
from topo.engine.spark.process.framing import pack_block
from topo.systems import has_ended, wait_for_group
from topo.tracking.clock import monotonic

_LOOK_SECS = 0.005
_END_SECS = 5.0


def spawn(command: Sequence[str], env: Mapping[str, str] | None = None) -> Popen[bytes]:
    """Start Python with this command, as the leader of a group, with a pipe for its input."""
    # The mask is inherited: a Ctrl-C before the process can ignore it would end it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(
            [sys.executable, "-P", *command],
            stdin=subprocess.PIPE,
            env=env,
            process_group=0,  # so it can be ended as a whole, with what user code forks
        )
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


class SlotProcess:
    """A process that waits to be told which slot it is; `module` says what such a slot does.

    One thread may wait for its end while another one ends it.
    """

    def __init__(self, module: str) -> None:
        program = slot_program(module, "sys.path.extend(sys.argv[1:])")
        self._process = spawn(["-c", program, *filter(None, sys.path)])
        self._path = ""

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def place(self, path: str, setup: bytes) -> None:
        """Tell it what it is; `path` is where its socket is to be, and what it says of itself."""
        self._path = path
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # gone already: whoever watches will see
            self._process.stdin.write(pack_block(setup))
            self._process.stdin.flush()

    def poll(self) -> int | None:
        """Return the exit code once it has ended, and end its children; None before."""
        return self.wait() if has_ended(self._process) else None

    def wait(self) -> int:
        """Wait for its end, end its children, and return its exit code."""
        code = wait_for_group(self._process)
        self._close_input()
        return code

    def ends_within(self, secs: float) -> bool:
        """Return True as soon as it has ended, False if it has not after so long."""
        deadline = monotonic() + secs
        while self.poll() is None:
            if monotonic() >= deadline:
                return False
            time.sleep(_LOOK_SECS)
        return True

    def note_end(self, why: str = "") -> str:
        """Tell how it ended and in what, and return it; `why` is the reason if it was ended.

        To be called before another process takes its place.
        """
        return note_end(self._path, self.wait(), why)

    def kill(self) -> None:
        """Kill it and its children; until it is reaped, nobody else has its number."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def let_go(self) -> None:
        """Close its standard input, which tells it to end; kill it if it does not."""
        self._close_input()
        if not self.ends_within(_END_SECS):
            self.kill()

    def _close_input(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # nobody reads it any more
            self._process.stdin.close()


def slot_program(module: str, finds_modules: str) -> str:
    """Return the program of a slot's process, which begins by finding topo's modules.

    Not by PYTHONPATH: Python itself imports modules at its start, and a `types.py` of the user's
    would come before its own.
    """
    return f"import sys; {finds_modules}; from {module} import main; main()"
