"""The acker's benchmark: it runs, checks its result, and gives the figures it promises."""

from __future__ import annotations

import sys

from benchmarks.acker import PENDING, run
from benchmarks.model import BenchOptions


def test_the_acker_suite_measures_the_ledger_and_one_and_two_services() -> None:
    said: list[str] = []
    runs = run(BenchOptions(seconds=0.2, repeat=1, progress=said.append))
    assert [{**found.params} for found in runs] == [
        {"part": "ledger", "batch_roots": 5000},
        {"part": "service", "services": 1, "batch_roots": 5000},
        {"part": "service", "services": 2, "batch_roots": 5000},
    ]
    for found in runs:
        assert found.verified
        assert found.unit == "updates"
        assert found.per_sec > 10_000
        assert found.vs_loop is not None
    assert len(said) == 3
    detail = runs[1].detail
    assert detail["pending_roots"] == PENDING
    assert float(detail["held_bytes_per_root"]) < 100
    if sys.platform == "linux":
        assert float(detail["resident_bytes_per_root"]) < 200
    assert float(detail["call_ms_p50"]) > 0
