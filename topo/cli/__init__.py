"""The command line: one module per command, loaded when the command is called."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn

try:
    import topo.forks  # noqa: F401 - the user's code may import gRPC too
    from topo.systems import check_system
except KeyboardInterrupt:  # nothing has begun that has to be ended
    os._exit(130)

check_system()


def main() -> NoReturn:
    try:
        from topo.cli.root import run
    except KeyboardInterrupt:
        os._exit(130)
    code = run(sys.argv[1:])
    if any(thread.name.startswith("topology ") for thread in threading.enumerate()):
        # Code of the user's does not return, and may hold a lock that the interpreter's end needs.
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
