"""Directories of one process in this machine, removed by a later one if this one is killed.

Logs of dead processes stay for a day, for somebody to read. The name says whose a directory is: the
process, and where process ids mean the same, for containers may share a temporary directory and
have ids of their own.
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

_DAY_SECS = 24 * 3600.0


def make_log_directory() -> Path:
    """Make a directory for the log of this process's Spark."""
    return Path(make_directory("topo-log-", kept_secs=_DAY_SECS))


def make_directory(prefix: str, kept_secs: float, parent: str | None = None) -> str:
    """Make one, and remove those of dead processes once they are that old."""
    parent = parent or tempfile.gettempdir()
    ours = f"{prefix}{_where_ids_are_known()}-"
    for path in Path(parent).glob(f"{ours}*"):
        process = path.name.removeprefix(ours).partition("-")[0]
        if process.isdigit() and not _is_alive(int(process)) and _age_secs(path) >= kept_secs:
            shutil.rmtree(path, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{ours}{os.getpid()}-", dir=parent)


def _age_secs(directory: Path) -> float:
    """Since something was last made in it; 0 if it is gone."""
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
