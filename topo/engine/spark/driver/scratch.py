"""Temporary directories on this machine: of a run, its slots, Spark's JVM and Spark's log.

A run removes its directory at its end, and the JVM its own, unless they are killed; so each run,
before it makes one, removes those of dead drivers. Logs of dead drivers stay for a day, to be read.
The name contains the owner: the process id and the namespace of process ids, for containers may
share a temporary directory and have ids of their own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
from hashlib import blake2b
from pathlib import Path

from topo.errors import EngineError

_DAY_SECS = 24 * 3600.0
_SOCKET_PATH_BYTES = 103
"""Of a unix socket, the least that systems allow."""
_SHORT = "/tmp"
_NAME_BYTES = 37
"""What the name of one of these directories adds to a path."""
_JVM_SOCKET_BYTES = _NAME_BYTES + 43
"""And in it that of a socket between Spark and Python."""
SLOT_SOCKET_BYTES = _NAME_BYTES + 18
"""Or that of a slot's, with the process id that it first bears."""


def make_run_directory() -> str:
    """Make a directory for a run: frames, large reports, a temporary checkpoint."""
    return _make("topo-run-", kept_secs=0.0)


def make_log_directory() -> Path:
    """Make a directory for the log of this process's Spark."""
    return Path(_make("topo-log-", kept_secs=_DAY_SECS))


def make_slots_directory() -> str:
    """Make a directory for the sockets of a run's slots."""
    return _make("topo-slots-", kept_secs=0.0, parent=socket_parent(SLOT_SOCKET_BYTES))


def make_jvm_directory() -> str:
    """Make a directory for the temporary files of this process's JVM."""
    return _make("topo-jvm-", kept_secs=0.0, parent=socket_parent(_JVM_SOCKET_BYTES))


def socket_parent(more_bytes: int) -> str:
    """Return the temporary directory, or a shorter one if socket paths would be too long."""
    usual = tempfile.gettempdir()
    if len(os.fsencode(usual)) + more_bytes <= _SOCKET_PATH_BYTES:
        return usual
    if os.path.isdir(_SHORT) and os.access(_SHORT, os.W_OK | os.X_OK):
        return _SHORT
    raise EngineError(
        f"{usual} is too long a path for unix sockets, and {_SHORT} cannot be written to",
        at=usual,
        hint="set TMPDIR to a short path on a local disk",
    )


def _make(prefix: str, kept_secs: float, parent: str | None = None) -> str:
    parent = parent or tempfile.gettempdir()
    ours = f"{prefix}{_where_ids_are_known()}-"
    for path in Path(parent).glob(f"{ours}*"):
        process = path.name.removeprefix(ours).partition("-")[0]
        if process.isdigit() and not _is_alive(int(process)) and _age_secs(path) >= kept_secs:
            shutil.rmtree(path, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{ours}{os.getpid()}-", dir=parent)


def _age_secs(directory: Path) -> float:
    """Return the seconds since the last file was made in it; 0 if it is gone."""
    try:
        return max(0.0, time.time() - directory.stat().st_mtime)
    except OSError:
        return 0.0


def _where_ids_are_known() -> str:
    names = [socket.gethostname()]
    with contextlib.suppress(OSError):  # Linux has it
        names.append(os.readlink("/proc/self/ns/pid"))
    return blake2b(" ".join(names).encode(), digest_size=4).hexdigest()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    return True
