"""The home of submitted topologies that the tests of processes share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.homes import Captured, Home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> Iterator[Home]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "numbers_topology", raising=False)
    monkeypatch.setenv("TOPO_HOME", str(tmp_path / "home"))
    here = str(Path(__file__).parent)
    paths = [here, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))
    monkeypatch.setattr("topo.cli.submit.ENGINE", "scripted_engine:ScriptedEngine")
    made = Home(tmp_path, capsys)
    yield made
    made.clear()
    monkeypatch.delitem(sys.modules, "numbers_topology", raising=False)
