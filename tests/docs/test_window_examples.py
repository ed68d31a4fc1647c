"""The examples with windows, under simulated time and with mock sources."""

from __future__ import annotations

import pytest

from examples import rolling_top_words, sessions, sliding_tuple_ts, sliding_window, temperatures
from topo.testing import TestCluster, complete_topology


def test_sliding_sums_are_those_of_the_last_thirty() -> None:
    numbers = [[number] for number in range(60)]
    result = complete_topology(sliding_window.topology(), mock_sources={"numbers": numbers})
    sums = [sum(range(max(0, end - 30), end)) for end in range(10, 70, 10)]
    assert [row[0] for row in result.tuples("sums")] == sums
    assert [row[0] for row in result.tuples("means")] == [sum(sums[:3]) / 3, sum(sums[3:]) / 3]


def test_windows_of_the_tuples_own_time_hold_what_comes_late() -> None:
    readings = [[1, 1_000], [2, 5_000], [4, 2_000], [8, 11_000]]
    result = complete_topology(sliding_tuple_ts.topology(), mock_sources={"readings": readings})
    assert result.tuples("sums") == [
        [-2_000, 3_000, 5],
        [1_000, 6_000, 6],
        [4_000, 9_000, 2],
        [7_000, 12_000, 8],
        [10_000, 15_000, 8],
    ]


def test_the_ranking_is_of_the_last_minute() -> None:
    words = [["a", 0], ["a", 1_000], ["b", 15_000], ["c", 66_000], ["c", 67_000], ["b", 68_000]]
    result = complete_topology(rolling_top_words.topology("2"), mock_sources={"words": words})
    rankings = {end: ranking for _, end, ranking in result.tuples("ranking")}
    assert rankings[10_000] == [("a", 2)]
    assert rankings[20_000] == [("a", 2), ("b", 1)]
    assert sorted(rankings[70_000]) == [("b", 2), ("c", 2)]
    assert rankings[120_000] == [("c", 2), ("b", 1)]


def test_reports_of_sessions_add_up_at_any_time() -> None:
    with TestCluster() as cluster:
        run = cluster.submit_topology("s", sessions.topology())
        for _ in range(120):
            cluster.advance(1)
        rows = run.tuples("sessions")
        assert {row[6] for row in rows} == {"early", "on_time"}
        assert {row[5] for row in rows} == {"+", "-"}
        cluster.advance(0)
        held = sum(row[3] if row[5] == "+" else -row[3] for row in run.tuples("sessions"))
        emitted = len(run.tuples("visits"))
        assert emitted - 12 < held <= emitted


def test_temperatures_are_filtered_smoothed_and_averaged() -> None:
    readings = [["s", 50.0, 1_000], ["s", 14.0, 2_000], ["s", 68.0, 3_000], ["s", 86.0, 12_000]]
    result = complete_topology(temperatures.topology(), mock_sources={"sensors": readings})
    assert [row[1] for row in result.tuples("celsius")] == pytest.approx([10, 20, 30])
    assert [row[1] for row in result.tuples("smoothed")] == pytest.approx([10, 12, 15.6])
    assert [row[2] for row in result.tuples("overall")] == pytest.approx([10, 15, 20])
    assert result.tuples("means") == [
        ["s", 0, 10_000, pytest.approx(15), 2],
        ["s", 10_000, 20_000, pytest.approx(30), 1],
    ]
