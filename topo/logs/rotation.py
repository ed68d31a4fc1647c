"""The bound on log files that other programs write: Spark's, and a driver's own output.

Their writers keep them open, so the file stays and only its content goes. They append, and so
continue at its new end.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

MAX_BYTES = 64 << 20


def cut_down(path: Path, max_bytes: int = MAX_BYTES) -> None:
    """Move the content of a file that has grown too large to the `.1` of its name."""
    with suppress(OSError):  # it is not there yet, or the disk is full
        if os.path.getsize(path) > max_bytes:
            try:
                shutil.copyfile(path, f"{path}.1")
            finally:
                os.truncate(path, 0)  # a full disk needs it most
