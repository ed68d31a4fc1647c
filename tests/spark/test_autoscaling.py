"""A submitted topology gets a second slot by itself, does its work in it, and gives it back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fault.homes import until
from tests.terminal import SECS, Terminal
from topo.manage.records import RunRecord
from topo.manage.registry import Registry

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TOPOLOGY = """
import time
from pathlib import Path

from topo import Spout, StatefulBasicBolt, TopologyBuilder


class Numbers(Spout):
    outputs = ("number",)

    def __init__(self, path):
        self.path, self.next = path, 0

    def next_tuple(self):
        limit = int(Path(self.path).read_text())
        self.context.gauge("lag", limit - self.next)
        if self.next < limit:
            self.emit([self.next], msg_id=self.next)
            self.next += 1


class Add(StatefulBasicBolt):
    def execute(self, tup):
        time.sleep(0.004)  # whatever else this machine does
        self.state["count"] = self.state.get("count", 0) + 1
        self.state["sum"] = self.state.get("sum", 0) + tup.number


def topology(path):
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers(path))
    builder.set_bolt("add", Add(), parallelism=2).shuffle_grouping("numbers")
    return builder
"""
CONF = {
    "topology.batch.max.tuples": 200,
    "topology.max.spout.pending": 400,
    "topology.message.timeout.secs": 600,
    "topology.scale.secs": 0.5,
    "topology.scale.window.secs": 5,
    "topology.scale.catch.up.secs": 10,
    "topology.scale.up.secs": 2,
    "topology.scale.down.secs": 4,
    "topology.scale.rest.secs": 3,
}


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    for row in json.loads(terminal.topo("list", "--json")):
        terminal.topo("kill", "--force", row["name"])


class Load:
    """The numbers that there are to be added, which the spout reads of a file."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "limit"
        self.set(0)

    def set(self, limit: int) -> None:
        self.limit = limit
        temporary = self.path.with_suffix(".new")
        temporary.write_text(str(limit))
        temporary.rename(self.path)


def run_of(terminal: Terminal) -> RunRecord:
    run = Registry(terminal.directory / "home").latest("sums")
    assert run is not None
    assert not run.over, run.reason
    return run


def spout_of(run: RunRecord) -> dict[str, Any]:
    """Return the figures of the spout, as they were written last."""
    figures = json.loads((run.directory / "stats.json").read_bytes())
    spout: dict[str, Any] = figures["components"]["numbers"]
    return spout


def settled_on(terminal: Terminal, slots: int) -> Callable[[], bool]:
    """Return what is True when it runs on so many slots."""

    def is_so() -> bool:
        run = run_of(terminal)
        plan = json.loads((Path(run.submission.checkpoint) / "topo-plan.json").read_bytes())
        is_there = plan["plan"]["slots"] == run.submission.workers == slots
        return bool(is_there and run.status == "ACTIVE")

    return is_so


@pytest.mark.parametrize(
    ("mode", "places"),
    [
        pytest.param("micro-batch", 2, marks=pytest.mark.of_batches),
        pytest.param("real-time", 4),  # two levels in two slots
    ],
)
def test_more_slots_for_lag_and_fewer_when_it_is_done(
    terminal: Terminal, mode: str, places: int
) -> None:
    (terminal.directory / "sums.py").write_text(TOPOLOGY)
    (terminal.directory / "conf.json").write_text(json.dumps({**CONF, "topology.mode": mode}))
    load = Load(terminal.directory)
    on = ("--master", f"local[{places}]", "--workers", "1..2")
    submit = ("submit", "sums.py", "-n", "sums", *on)
    terminal.topo(*submit, "--config", "conf.json", "-w", str(SECS), "--", str(load.path))
    until(settled_on(terminal, 1), SECS)
    at_work = settled_on(terminal, 2)

    def is_at_work_while_more_comes() -> bool:
        load.set(max(load.limit, spout_of(run_of(terminal))["acked"] + 2000))
        return at_work()

    def is_done() -> bool:
        spout = spout_of(run_of(terminal))
        return bool(spout["gauges"].get("lag") == 0 and spout["pending"] == 0)

    until(is_at_work_while_more_comes, SECS)
    until(settled_on(terminal, 1), SECS)
    until(is_done, SECS)

    decisions = json.loads((run_of(terminal).directory / "scale.json").read_bytes())["decisions"]
    steps = [each for each in decisions if each["to"] != each["slots"]]
    assert steps[-1]["to"] == 1
    log = (run_of(terminal).directory / "log" / "driver.log").read_text()  # it has them all
    up, down = re.findall(r"sums scales from (\d to \d slots) \(\w+\): .*, lag ([\d,]+)", log)
    assert (up[0], down[0]) == ("1 to 2 slots", "2 to 1 slots")
    assert up[1] != "0"
    if mode == "real-time":  # its log of epochs is its own while it runs
        terminal.topo("kill", "sums")
    printed = terminal.topo("state", "sums", "add", "--json")
    shown = json.loads(printed[printed.index("[{") :])  # behind what Spark's start says
    totals = {"count": 0, "sum": 0}
    for entry in shown:
        totals[entry["key"]] += entry["value"]
    assert totals == {"count": load.limit, "sum": sum(range(load.limit))}
