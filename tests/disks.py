"""Small file systems of their own, for tests that fill them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(path: Path, megabytes: int) -> Iterator[Path]:
    """Mount a file system of this size on a new directory; skip the test where it cannot be."""
    path.mkdir()
    options = f"size={megabytes}m,mode=700"
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system may be mounted here, to be filled")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)
