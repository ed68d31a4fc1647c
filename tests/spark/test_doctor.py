"""`topo doctor` on a real Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from topo.cli.root import run as run_command

pytestmark = [pytest.mark.spark, pytest.mark.smoke, pytest.mark.stops_spark]


def test_this_machine_passes_every_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOPO_HOME", str(tmp_path / "home"))
    code = run_command(["doctor", "--spark", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert (code, document["ok"]) == (0, True), document
    status = {check["name"]: check["status"] for check in document["checks"]}
    assert (status["java"], status["workers"]) == ("ok", "ok"), document
