"""Runs in which Python lacks what it does not have on macOS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.test_systems import NOT_EVERYWHERE

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_a_topology_runs_without_what_only_linux_has(mode: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        f"import os, select\nfor name in {sorted(NOT_EVERYWHERE)}:\n"
        "    for module in (os, select):\n"
        "        if hasattr(module, name):\n"
        "            delattr(module, name)\n"
    )
    example = str(ROOT / "examples" / "word_count.py")
    checkpoint = f"topology.checkpoint.dir={tmp_path / 'checkpoint'}"
    command = [sys.executable, "-m", "topo.cli", "local", example, "--show", "count", "--json"]
    command += ["-c", f"topology.mode={mode}", "-c", checkpoint, "-c", "topology.epoch.sync=true"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "TOPO_HOME": str(tmp_path / "home")},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "AttributeError" not in done.stderr
    assert '["the", 4]' in done.stdout
