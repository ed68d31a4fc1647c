"""The driver's side of the nursery: its process, and the command that Spark takes for Python."""

from __future__ import annotations

import atexit
import contextlib
import os
import shlex
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

from topo.engine.spark.process.spawn import spawn
from topo.engine.spark.worker import handover
from topo.engine.spark.worker.nursery import HASH_SEED

_STOP_SECS = 5.0


class NurseryProcess:
    """The process that forks Spark's Python processes; its socket is in `directory`.

    It ends with this process, however that ends: standard input ends then.
    """

    def __init__(self, directory: str) -> None:
        self.command = str(Path(directory) / "python")
        path = os.path.join(directory, "nursery")
        words = [sys.executable, "-IS", str(_file_of_handover(directory)), path]
        Path(self.command).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        os.chmod(self.command, 0o700)
        self._process = spawn(
            ["-m", "topo.engine.spark.worker.nursery", path],
            env={**os.environ, "PYTHONHASHSEED": HASH_SEED},
        )
        atexit.register(self.close)

    def close(self) -> None:
        """Fork no more; what was forked ends with Spark."""
        atexit.unregister(self.close)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_SECS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _file_of_handover(directory: str) -> Path:
    """Return where the command's source is; of a topo in an archive, it is copied from there."""
    file = Path(handover.__file__)
    if file.is_file():
        return file
    copy = Path(directory) / file.name
    copy.write_bytes(files(handover.__package__ or "").joinpath(file.name).read_bytes())
    return copy
