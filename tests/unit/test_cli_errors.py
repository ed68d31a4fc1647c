"""`topo errors`: each error is said once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.test_control_registry import make, say
from topo.cli.root import run as topo
from topo.manage.records import RunRecord
from topo.manage.registry import Registry

TRACEBACK = "Traceback (most recent call last):\n  File \"shop.py\", line 7\nKeyError: 'x'\n"
ENTRY = {
    "component": "count",
    "task": 3,
    "host": "m1",
    "kind": "uncaught",
    "type": "KeyError",
    "message": "'x'",
    "at": "shop.py:7",
    "traceback": TRACEBACK,
    "count": 1,
    "first": "2026-11-19T10:00:00Z",
    "last": "2026-11-19T10:00:00Z",
}


@pytest.fixture
def failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunRecord:
    monkeypatch.setenv("TOPO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    run = make(Registry(tmp_path / "home"))
    say(run, status="FAILED", reason="KeyError: 'x'", traceback=TRACEBACK)
    return run


@pytest.mark.parametrize("options", [[], ["--traceback"]])
def test_a_failed_start_is_told_once(
    failed: RunRecord, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (failed.directory / "errors.json").write_text(json.dumps([ENTRY]))
    assert topo(["errors", *options, "words"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("words FAILED before its first batch\n")
    assert out.count("Traceback") == len(options)
    assert out.count("KeyError") == 1 + len(options)  # in the table, and where it was asked for


def test_a_failed_start_without_entries_has_its_reason(
    failed: RunRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    assert topo(["errors", "words"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("words FAILED before its first batch: KeyError: 'x'\n")
    assert out.count("Traceback") == 1
