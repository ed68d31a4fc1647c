"""The command that a local Spark runs as Python: it has the nursery fork what Spark asks for.

Spark starts two kinds of Python processes, the daemon of its workers and one process for each level
with state whenever a query starts. Each would import for a second, one after the other. This
command passes arguments, environment and standard streams on to the nursery, whose fork is that
process within milliseconds, and then stands for it: it ends as the fork ends, and the fork ends
with it. If there is no nursery, it becomes an ordinary Python.

It runs without `site` and imports little, since its own start is what is saved.
"""

from __future__ import annotations

import array
import marshal
import os
import socket
import sys
import time

_LOOK_SECS = 0.2


def main() -> None:
    path, arguments = sys.argv[1], sys.argv[2:]
    try:
        nursery = socket.socket(socket.AF_UNIX)
        nursery.connect(path)
        request = marshal.dumps((arguments, dict(os.environ), os.getcwd()))
        streams = array.array("i", [0, 1, 2])
        nursery.sendmsg(
            [len(request).to_bytes(4, "little")],
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)],
        )
        nursery.sendall(request)
        started = nursery.recv(4, socket.MSG_WAITALL)
    except OSError:
        started = b""
    if len(started) < 4:  # no nursery, or nothing that it can fork
        os.execv(sys.executable, [sys.executable, *arguments])
    stand_for(nursery, int.from_bytes(started, "little"))


def stand_for(nursery: socket.socket, process: int) -> None:
    """End when the forked process ends, with its exit code."""
    try:
        code = nursery.recv(1)
    except OSError:
        code = b""
    if code:
        os._exit(code[0])
    while True:  # the nursery was killed, and the process lives on
        try:
            os.kill(process, 0)
        except OSError:
            os._exit(1)
        time.sleep(_LOOK_SECS)


if __name__ == "__main__":
    main()
