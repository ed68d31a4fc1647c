"""Directories in this machine: of a run and its slots, and of Spark's JVM.

A run removes its directory at its end, and the JVM its own, save where they are killed: then a
later process does.
"""

from __future__ import annotations

import os
import tempfile

from topo.errors import EngineError
from topo.logs.directories import make_directory

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
    return make_directory("topo-run-", kept_secs=0.0)


def make_slots_directory() -> str:
    """Make a directory for the sockets of a run's slots."""
    return make_directory("topo-slots-", kept_secs=0.0, parent=socket_parent(SLOT_SOCKET_BYTES))


def make_jvm_directory() -> str:
    """Make a directory for the temporary files of this process's JVM."""
    return make_directory("topo-jvm-", kept_secs=0.0, parent=socket_parent(_JVM_SOCKET_BYTES))


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
