"""The directory of a run in this machine: frames, large reports, a checkpoint that nobody keeps.

A run removes it at its end. A driver that was killed cannot; so each run, before it makes its own,
removes those of dead ones. The name says whose a directory is: the process, and where process ids
mean the same, for containers may share a temporary directory and have ids of their own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from hashlib import blake2b
from pathlib import Path

_PREFIX = "topo-run-"


def make_run_directory() -> str:
    """A new one, for a run of this process."""
    ours = f"{_PREFIX}{_where_ids_are_known()}-"
    for path in Path(tempfile.gettempdir()).glob(f"{ours}*"):
        process = path.name.removeprefix(ours).partition("-")[0]
        if process.isdigit() and not _is_alive(int(process)):
            shutil.rmtree(path, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{ours}{os.getpid()}-")


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
