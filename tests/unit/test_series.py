"""The samples of a run: fine for minutes, coarse for a day, and few in all."""

from __future__ import annotations

from topo.metrics.series import COUNTERS, LEVELS, Series


def test_samples_are_kept_for_as_long_as_charts_go_back() -> None:
    series = Series()
    for secs in range(0, 100_000, 5):
        series.add(secs, dict.fromkeys((*COUNTERS, *LEVELS), secs))
    fine, coarser, day = series.dump()
    now = 99_995
    assert (fine[0][0], len(fine)) == (now - 620, 125)
    assert now - 11_000 <= coarser[0][0] < now - 10_900
    assert now - 88_000 <= day[0][0] < now - 87_000
    assert len(fine) + len(coarser) + len(day) < 500
    assert series.last(600, now)["emitted_per_sec"][-1] == 1.0
