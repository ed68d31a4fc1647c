"""Sources of several parts: each part is in order of time, and none is late for another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta as td
from typing import Any

import pytest

from topo import Count, EventTime, Spout, TopologyBuilder, Tumbling, WindowAggregate
from topo.testing import TestCluster

SECONDS = 500
BLOCK = 50


class Parts(Spout):
    """Reads parts that all have the same times, a block of each in turn, and then waits."""

    outputs = ("key", "ts")

    def __init__(self, parts: int = 4, *, tells: bool = True) -> None:
        self.tells = tells
        self.position = [0] * parts
        self.turn = 0

    def open(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        tasks, index = (
            len(context.component_tasks(context.this_component_id)),
            context.this_task_index,
        )
        self.own = [part for part in range(len(self.position)) if part % tasks == index]

    def next_tuple(self) -> None:
        left = [part for part in self.own if self.position[part] < SECONDS]
        if self.tells:
            self.collector.read_splits({f"part {part}": part in left for part in self.own})
        if not left:
            return
        part = left[self.turn % len(left)]
        self.turn += 1
        if self.tells:
            self.collector.from_split(f"part {part}")
        first = self.position[part]
        self.position[part] = last = min(first + BLOCK, SECONDS)
        self.emit_many([[part, 1_000 * second] for second in range(first, last)])


@contextmanager
def windows_of(spout: Spout, *, tasks: int = 1, **time: Any) -> Iterator[tuple[TestCluster, Any]]:
    builder = TopologyBuilder()
    builder.set_spout("parts", spout, tasks)
    window = WindowAggregate(
        key="key",
        window=Tumbling(td(seconds=10)),
        time=EventTime("ts", lag=td(seconds=1), **time),
        aggregates={"n": Count()},
    )
    builder.set_bolt("windows", window, 2).fields_grouping("parts", ["key"])
    with TestCluster() as cluster:
        conf = {"topology.batch.max.tuples": 3 * BLOCK}
        yield cluster, cluster.submit_topology("t", builder.create_topology(), conf)


def late(run: Any) -> int:
    return int(run.stats().components["windows"].late)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("tasks", [1, 2, 4])
def test_ordered_parts_are_not_late_for_each_other(tasks: int, restarts: bool) -> None:
    with windows_of(Parts(), tasks=tasks) as (_, run):
        while run.step():
            if restarts:
                run.restart()
        assert late(run) == 0
        assert run.watermark("windows") == 1_000 * (SECONDS - 1) - 1_000
        rows = run.tuples("windows")
        assert sum(row[-1] for row in rows) == 4 * (SECONDS - 10)


def test_parts_that_are_not_told_apart_are_late_for_each_other() -> None:
    with windows_of(Parts(tells=False)) as (_, run):
        run.settle()
        assert late(run) > 0


def test_a_part_without_more_is_left_out_after_the_idle_time() -> None:
    spout = Parts(2)
    spout.position[1] = SECONDS  # it is read to its end, and nothing came of it yet
    with windows_of(spout, idle=td(seconds=5)) as (cluster, run):
        run.settle()
        assert run.watermark("windows") is None
        cluster.advance(6)
        assert run.watermark("windows") == 1_000 * (SECONDS - 1) - 1_000


class OneAfterTheOther(Parts):
    """Its second task knows its parts when the first one has read all of its own."""

    def open(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        super().open(conf, context, collector)
        self.begins = 1.0 if context.this_task_index else 0.0

    def next_tuple(self) -> None:
        if self.context.now() >= self.begins:
            super().next_tuple()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_task_holds_the_watermark_until_its_parts_do(restarts: bool) -> None:
    with windows_of(OneAfterTheOther(), tasks=2) as (cluster, run):
        run.settle()
        assert run.watermark("windows") is None
        if restarts:
            run.restart()
        cluster.advance(1)  # sooner than anything is idle
        assert late(run) == 0
        assert run.watermark("windows") == 1_000 * (SECONDS - 1) - 1_000


class Handed(Parts):
    """Gives its second part up when the first one is read."""

    def next_tuple(self) -> None:
        if self.position[0] >= SECONDS:
            self.own = [0]
        super().next_tuple()


def test_a_part_that_is_given_up_holds_nothing_back() -> None:
    spout = Handed(2)
    spout.position[1] = SECONDS - BLOCK - 1
    with windows_of(spout, idle=None) as (_, run):
        run.settle()
        assert run.watermark("windows") == 1_000 * (SECONDS - 1) - 1_000


class Stuck(Spout):
    """Reads one of its two parts, again and again."""

    outputs = ("key", "ts")

    def __init__(self) -> None:
        self.left = 0
        self.sent = 0

    def next_tuple(self) -> None:
        self.collector.read_splits({"quick": True, "stuck": True})
        self.collector.from_split("quick")
        if self.left:
            self.left -= 1
            self.sent += 1
            self.emit([0, self.sent])

    def activate(self) -> None:
        self.left = 1


def test_a_watermark_that_stands_names_the_part() -> None:
    with windows_of(Stuck()) as (cluster, run):
        run.settle()
        run.deactivate()
        cluster.advance(100)
        run.activate()
        with pytest.warns(UserWarning, match="held back by 'parts' task [0-9]+, its 'stuck'"):
            run.settle()


class Files(Spout):
    """Reads parts one after the other, and waits for the next."""

    outputs = ("key", "ts")

    def __init__(self) -> None:
        self.waiting: list[tuple[str, list[int]]] = []

    def next_tuple(self) -> None:
        self.collector.read_splits({name: True for name, _ in self.waiting})
        if self.waiting:
            name, times = self.waiting.pop(0)
            self.collector.from_split(name)
            self.emit_many([[0, ts] for ts in times])
        self.collector.read_splits({name: True for name, _ in self.waiting})


@pytest.mark.parametrize("when_idle", ["leave", "clock"])
def test_a_source_whose_parts_are_all_read_is_idle_by_the_rule_of_inputs(when_idle: str) -> None:
    spout = Files()
    spout.waiting = [("first", [1_000, 2_000, 15_000])]
    with windows_of(spout, idle=td(seconds=5), when_idle=when_idle) as (cluster, run):
        run.settle()
        assert run.watermark("windows") == 14_000
        cluster.advance(60)
        followed = run.watermark("windows") > 60_000
        assert followed == (when_idle == "clock")
        assert [row[1] for row in run.tuples("windows")] == ([0, 10_000] if followed else [0])
