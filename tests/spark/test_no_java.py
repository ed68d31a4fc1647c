"""On a machine without Java, Spark runs on the one that topo brought along."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


def path_without_java(directory: Path) -> str:
    """Everything that is on the PATH but Java."""
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            link = directory / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    return str(directory)


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_the_first_command_counts_words(tmp_path: Path, mode: str) -> None:
    # What is printed goes to a pipe, where Python by itself would keep it until it is much.
    without = ("JAVA_HOME", "PYTHONUNBUFFERED")
    environ = {key: value for key, value in os.environ.items() if key not in without}
    environ["PATH"] = path_without_java(tmp_path)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "topo.cli",
            "local",
            "examples/word_count.py",
            "-c",
            f"topology.mode={mode}",
        ],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:4] == ["4", "the", "2", "and"]
