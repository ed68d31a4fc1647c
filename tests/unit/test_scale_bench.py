"""The benchmark of scale: it runs, every message is acked, and the driver's share stays small."""

from __future__ import annotations

import threading
from multiprocessing import Pipe

import pytest

from benchmarks.model import BenchOptions
from benchmarks.scale import _drive_coordinator, run

pytestmark = pytest.mark.spark  # it needs no Spark, but a quiet moment

GOAL_MS = 1.0
"""Of the driver's Python for a slot and batch, where it does not hold the ackers."""


def test_the_drivers_python_by_slot_and_batch() -> None:
    said: list[str] = []
    runs = run(BenchOptions(seconds=0.5, repeat=1, workers=10, progress=said.append))
    parts = [found.params["part"] for found in runs]
    assert parts == ["micro-batch", "micro-batch, ackers outside", "real-time"]
    assert len(said) == 3
    own, outside, real_time = runs
    for found in runs:
        assert found.verified
        assert float(found.detail["ms"]) == pytest.approx(1000 / found.per_sec, rel=0.01)
        assert 0 < float(found.detail["reports"]) < float(found.detail["ms"])
    for call in ("Begin", "Wait", "Stage", "Status"):
        assert float(own.detail[call]) > 0
    assert float(outside.detail["ackers"]) > 0
    assert float(outside.detail["ms"]) < GOAL_MS
    assert float(real_time.detail["ms"]) < GOAL_MS


def test_a_driver_ends_with_its_benchmark() -> None:
    """Which was killed: a thread that goes on would keep the process."""
    before = set(threading.enumerate())
    here, there = Pipe()
    here.close()
    with pytest.raises(EOFError):
        _drive_coordinator(there, 1)
    assert set(threading.enumerate()) <= before
