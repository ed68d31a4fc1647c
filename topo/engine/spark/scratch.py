"""Directories in this machine: of a run, with its frames, and of Spark's log.

A run removes its directory at its end. A driver that was killed cannot; so each run, before it
makes its own, removes those of dead ones. Logs of dead ones stay for a day, for somebody to read.
The name says whose a directory is: the process, and where process ids mean the same, for containers
may share a temporary directory and have ids of their own.
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


def make_run_directory() -> str:
    """A new one, for a run of this process: frames, large reports, a checkpoint nobody keeps."""
    return _make("topo-run-", kept_secs=0.0)


def make_log_directory() -> Path:
    """A new one, for the log of the Spark of this process."""
    return Path(_make("topo-log-", kept_secs=_DAY_SECS))


def _make(prefix: str, kept_secs: float) -> str:
    ours = f"{prefix}{_where_ids_are_known()}-"
    for path in Path(tempfile.gettempdir()).glob(f"{ours}*"):
        process = path.name.removeprefix(ours).partition("-")[0]
        if process.isdigit() and not _is_alive(int(process)) and _age_secs(path) >= kept_secs:
            shutil.rmtree(path, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{ours}{os.getpid()}-")


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
