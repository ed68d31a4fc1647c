"""The systems that topo runs on, and what they differ in.

Linux is the one that everything is measured and tested on. macOS has no `sched_getaffinity` and no
`fdatasync`, `waitid` only from Python 3.13 on, and another `struct flock`; neither `eventfd` nor
`pipe2`, for which a pipe does as well everywhere, nor handles of processes. Windows has no forks,
process groups or record locks: the engine on Spark and the command line refuse it with a sentence,
and what needs none of these, such as the test kit, works as far as it does. `/proc` is read where
there is one; nobody depends on it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Sequence

from topo.errors import EngineError

SUPPORTED = ("linux", "darwin")


def check_system() -> None:
    """Raise an EngineError on a system on which neither Spark's engine nor the CLI can work."""
    if sys.platform not in SUPPORTED:
        raise EngineError(
            f"topo runs on Linux and macOS, not on {sys.platform!r}",
            hint="on Windows, run it in WSL",
            code="system",
        )


def usable_cores() -> int:
    """Return how many cores this process may use; all of the machine's where nobody can say."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def sync_data(handle: int) -> None:
    """Return when the written content of a file is on the disk."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(handle)
        return
    import fcntl

    try:  # macOS: fsync leaves it in the disk's own cache
        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)  # type: ignore[attr-defined,unused-ignore]
    except (AttributeError, OSError):  # another system; a file system that has no such call
        os.fsync(handle)


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return True once a process has ended, which it need not be reaped for."""
    if process.returncode is not None:
        return True
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:  # another thread has reaped it
        return True


def wait_for_group(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of a process that leads a group, end the group, return the exit code."""
    if process.returncode is not None:
        return process.returncode
    with contextlib.suppress(ChildProcessError):
        if hasattr(os, "waitid"):  # until it is reaped, nobody else's group can have its number
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        else:  # nor as long as its group has a process, and one without has none to end
            process.wait()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


_LAUNCH = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"{sys.argv[2]}: {error.strerror}")
"""
"""Asks Linux for SIGKILL at the end of the thread that started this, and becomes the program. That
is done in a process of its own, since Python code between fork and exec may stand still."""


def ends_with_thread(command: Sequence[str]) -> list[str]:
    """Return a command that is killed with the thread that starts it, where the system can."""
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *command]


class Bell:
    """A file that a selector finds readable once any thread, or a signal, has rung it."""

    def __init__(self) -> None:
        self._reading, self.ringing = os.pipe()
        """The second one is for `signal.set_wakeup_fd`."""
        os.set_blocking(self._reading, False)
        os.set_blocking(self.ringing, False)

    def fileno(self) -> int:
        """Return the file's number, for a selector."""
        return self._reading

    def ring(self) -> None:
        """Make it readable."""
        with contextlib.suppress(BlockingIOError):  # full, so it is readable already
            os.write(self.ringing, b"\0")

    def silence(self) -> None:
        """Make it unreadable until somebody rings again."""
        with contextlib.suppress(BlockingIOError):
            while len(os.read(self._reading, 4096)) == 4096:
                continue

    def close(self) -> None:
        """Close it; nobody may ring any more."""
        os.close(self._reading)
        os.close(self.ringing)


def open_process(pid: int) -> int | None:
    """Return a handle of a process, for `signal.pidfd_send_signal`; None if there is none.

    Only Linux has them. A handle stands for no other process, even if its number does later.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


_FLOCK = "@qqihh" if sys.platform == "darwin" else "@hhqqi4x"


def pack_flock(kind: int) -> bytes:
    """Return a `struct flock` about a whole file."""
    if sys.platform == "darwin":
        return struct.pack(_FLOCK, 0, 0, 0, kind, os.SEEK_SET)
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)


def unpack_flock(data: bytes) -> tuple[int, int]:
    """Return the kind of a lock, and the process that has it, of a `struct flock`."""
    fields = struct.unpack(_FLOCK, data)
    if sys.platform == "darwin":
        _, _, pid, kind, _ = fields
    else:
        kind, _, _, _, pid = fields
    return kind, pid
