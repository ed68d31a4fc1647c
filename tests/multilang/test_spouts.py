"""Spouts in other processes: acks, failures, a process that is lost, one that sleeps."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.multilang.started import started
from topo import BasicBolt, TopologyBuilder, Tuple
from topo.errors import ShellError
from topo.multilang import ShellSpout
from topo.testing import TestCluster, run_spout


def spout(name: str, *args: object) -> ShellSpout:
    command = [sys.executable, f"{name}.py", *map(str, args)]
    return ShellSpout(command, ("line",), cwd="children")


class FailsOnce(BasicBolt):
    outputs = ("line",)

    def __init__(self) -> None:
        self.lines: set[str] = set()

    def execute(self, tup: Tuple) -> None:
        if tup.line.endswith("7") and tup.line not in self.lines:
            self.lines.add(tup.line)
            raise self.failure()
        self.emit([tup.line])

    def failure(self) -> Exception:
        from topo import FailTuple

        return FailTuple("once")


def topology(lines: ShellSpout) -> Any:
    builder = TopologyBuilder()
    builder.set_spout("lines", lines)
    builder.set_bolt("pass", FailsOnce()).shuffle_grouping("lines")
    return builder.create_topology()


def settle_until(cluster: TestCluster, run: Any, count: int) -> list[str]:
    """Settle until so many tuples have come, or for as long as an answer may take."""
    until = time.perf_counter() + 20
    while len(run.tuples("pass")) < count and time.perf_counter() < until:
        run.settle()
        cluster.await_calls(0.05)
    return sorted(row[0] for row in run.tuples("pass"))


def test_failed_lines_come_again_and_acks_are_heard(tmp_path: Path) -> None:
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", topology(spout("lines", 200, tmp_path / "acked")))
        rows = settle_until(cluster, run, 200)
        assert rows == sorted(f"line {number}" for number in range(200))
        run.settle()
    acked = (tmp_path / "acked").read_text().splitlines()
    assert len(acked) == 200
    assert not started()


def test_verdicts_on_messages_of_an_earlier_process_are_counted() -> None:
    run = run_spout(spout("lines", 3), 0)
    shell = run.spout
    try:
        while len(run.emitted) < 3:
            run.next()
        assert [emitted.msg_id for emitted in run.emitted] == [(f"line {n}", 1) for n in range(3)]
        run.ack(("line 0", 0))
        run.fail(("line 1", 1))
        counters, *_ = shell.context.figures.take()
        assert dict(counters) == {"verdicts_of_lost_processes": 1}
        while len(run.emitted) < 4:
            run.next()
        assert run.emitted[3] == ["line 1"]
    finally:
        shell.close()


def test_a_limit_of_pending_messages_is_kept() -> None:
    class Limited(ShellSpout):
        most = 0

        def room(self, most: int) -> int:
            self.most = max(self.most, self.pending_count)
            return max(0, min(most, 5 - self.pending_count))

    command = [sys.executable, "lines.py", "20"]
    limited = Limited(command, ("line",), cwd="children")
    run = run_spout(limited, 0)
    try:
        while len(run.emitted) < 20:
            run.next()
            if limited.pending_count == 5:
                for emitted in run.emitted[-5:]:
                    run.ack(emitted.msg_id)
        assert limited.most == 5
    finally:
        limited.close()


def test_a_spout_that_sleeps_holds_up_nobody() -> None:
    run = run_spout(spout("sleeps"), 0)
    try:
        begin = time.perf_counter()
        run.next(100)
        assert time.perf_counter() - begin < 5  # it sleeps for a minute
    finally:
        run.spout._process.kill()  # type: ignore[attr-defined]
        run.spout.close()


def test_a_spout_that_ends_stops_the_topology() -> None:
    run = run_spout(spout("ends"), 0)
    with pytest.raises(ShellError, match=r"ended with exit code 3(.|\n)*no more lines"):
        run.next(10**9)
    run.spout.close()


def test_a_lost_spout_starts_again_if_errors_do_not_stop() -> None:
    conf = {"topology.uncaught.error": "fail"}
    run = run_spout(spout("ends"), 0, conf)
    try:
        lives: set[int] = set()
        while len(lives) < 2:
            run.next()
            lives |= {emitted.msg_id[1] for emitted in run.emitted}
        assert lives == {1, 2}
        assert "exit code 3" in str(run.errors[0])
    finally:
        run.spout.close()
