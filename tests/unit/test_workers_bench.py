"""The benchmark of a second worker: what processor time allows."""

from __future__ import annotations

import pytest

from benchmarks.workers import Measured


def test_what_is_possible_is_the_least_of_the_slots_cores_and_the_machines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("benchmarks.workers.os.cpu_count", lambda: 2)
    dear = Measured(1000, slots_secs=50e-6, all_secs=60e-6, verified=True)
    assert dear.possible_per_sec(1) == pytest.approx(20_000)
    assert dear.possible_per_sec(2) == pytest.approx(2 / 60e-6), "the cores are shared"
    assert Measured(1000, 0.0, 0.0, True).possible_per_sec(1) == 0.0, "there is no /proc"
