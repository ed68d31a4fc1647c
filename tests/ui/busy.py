"""Topologies of any size that are busy: their figures grow, agree with each other, and differ.

What the pages look like is judged by these: of figures that stand still, rates are nought and every
row is the same. Two components are worth a look: one is near its limit, and one has errors.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.ui.worlds import Count, StagedDriver, Words, World, by_input, component, error_of
from topo.builder import TopologyBuilder
from topo.manage.marks import note_mark
from topo.manage.records import RunRecord
from topo.topology.layout import TaskLayout
from topo.topology.model import Topology

_STEPS = (
    "parse", "validate", "deduplicate", "enrich-with-customers", "convert-currency", "score-fraud",
    "classify", "session-windows", "count-by-minute", "join-payments", "rank", "format",
)  # fmt: skip
_REGIONS = ("eu", "us", "asia", "africa", "latam", "oceania", "nordics", "gulf", "iberia", "alps")
_BEHIND_SECS = 3600.0
"""For so long the topologies have been running."""
SLOW, BROKEN = 0.93, 0.31
"""The busy shares of the slowest component, and of the one with errors."""


def shop(components: int) -> Topology:
    """A topology of at least five components: chains by region that end in what they share."""
    builder = TopologyBuilder()
    if components < 10:
        builder.set_spout("orders", Words(), parallelism=2)
        builder.set_spout("prices", Words())
        enrich = builder.set_bolt("enrich", Count(), parallelism=2)
        enrich.fields_grouping("orders", ["word"]).all_grouping("prices")
        builder.set_bolt("fraud-check", Count(), parallelism=2).shuffle_grouping("enrich")
        builder.set_bolt("revenue", Count()).fields_grouping("enrich", ["word"])
        return builder.create_topology()
    regions = _REGIONS[: 4 if components < 100 else len(_REGIONS)]
    chains = [[f"orders-{region}"] for region in regions]
    for at in range(components - len(regions) - 2):
        chain = chains[at % len(regions)]
        step, again = len(chain) - 1, (len(chain) - 1) // len(_STEPS)
        chain.append(
            f"{_STEPS[step % len(_STEPS)]}{f'-{again + 1}' if again else ''}-{chain[0][7:]}"
        )
    for chain in chains:
        builder.set_spout(chain[0], Words(), parallelism=2)
        for before, after in pairwise(chain):
            builder.set_bolt(after, Count(), parallelism=2).fields_grouping(before, ["word"])
    revenue = builder.set_bolt("revenue-of-all-regions", Count(), parallelism=4)
    for chain in chains:
        revenue.shuffle_grouping(chain[-1])
    builder.set_bolt("report", Count()).global_grouping("revenue-of-all-regions")
    return builder.create_topology()


class BusyDriver(StagedDriver):
    """A driver whose topology works: each component at a rate of its own."""

    def __init__(self, topology: Topology, directory: Path) -> None:
        super().__init__(topology, directory)
        self._began = time.time() - _BEHIND_SECS
        names = list(topology.components)
        bolts = [name for name in names if topology.components[name].kind != "spout"]
        self.slow, self.broken = bolts[len(bolts) // 2], bolts[0]
        spouts = [name for name in names if name not in bolts]
        self._rates = {name: 2400.0 / (1 + at % 7) for at, name in enumerate(spouts)}
        for level in topology_levels(topology):
            self._rates |= {name: self._flow_to(topology, name) for name in level}
        self._busy = {name: 0.04 + 0.07 * (at % 7) for at, name in enumerate(names)}
        self._busy |= {self.slow: SLOW, self.broken: BROKEN}
        self._topology, self._tasks = topology, TaskLayout(topology)

    def _flow_to(self, topology: Topology, bolt: str) -> float:
        """Return the tuples that a bolt executes in a second, and emits as many."""
        of = topology.components[bolt]
        return sum(
            self._rates[read.component] * (of.parallelism if read.grouping.kind == "all" else 1)
            for read in of.inputs
        )

    def stats(self, window_secs: float | None) -> dict[str, Any]:
        lived = time.time() - self._began
        secs = min(lived, window_secs or lived)
        of = {name: self._component(name, secs) for name in self._topology.components}
        spouts = [each for each in of.values() if each["kind"] == "spout"]
        rows = sum(self._rates[name] for name in of if of[name]["kind"] == "spout")
        batch = {**self.figures["batch"], "id": int(lived / 0.64), "rows_per_sec": rows}
        return {
            **self.figures, "components": of, "batch": batch, "status": self.status_now,
            "uptime_secs": lived, "acker": self.figures["acker"] | {
                "pending": sum(each["pending"] for each in spouts), "lag_secs": 1.5,
            },
        }  # fmt: skip

    def _component(self, name: str, secs: float) -> dict[str, Any]:
        of = self._topology.components[name]
        count = int(self._rates[name] * secs / of.parallelism)
        busy = self._busy[name]
        figures: dict[str, Any] = {
            "emitted": count, "emitted_by": {"default": count}, "transferred": count,
            "acked": count - 9, "failed": 0, "failed_by": {}, "pending": 0,
            "saved_bytes": 2_000_000 if of.parallelism > 1 else 0,
        }  # fmt: skip
        if of.kind == "spout":
            figures |= {"failed": 3, "failed_by": {"timeout": 2, "failed": 1}, "pending": 1200}
            figures |= {"complete_by": {"0.3": count // 2, "1": count // 2}}
        else:
            each_ms = busy * of.parallelism * 1000 / self._rates[name]
            figures |= {"executed": count, "execute_ms": each_ms, "capacity": busy}
            figures["process_ms"] = each_ms
        whole = component(of.kind, of.parallelism, **figures)
        first = self._tasks.tasks_of(name).start - 1
        whole["by_task"] = {str(first + int(n)): each for n, each in whole["by_task"].items()}
        if of.inputs:
            flows = {
                read.component: self._rates[read.component] * secs
                * (of.parallelism if read.grouping.kind == "all" else 1)
                for read in of.inputs
            }  # fmt: skip
            whole |= by_input(of, flows, whole["execute_ms"])
        if name == self.slow:
            late = {"watermark_secs": time.time() - 8, "watermark_lag_secs": 8.0}
            whole |= {
                "gauges": {**late, "open_windows": 17.0},
                "counters": {"cache_hits": 10 * secs},
            }
        return whole

    def history(self, window_secs: float) -> dict[str, Any]:
        now, points = time.time(), 120
        topology = self._topology.components
        in_ = sum(self._rates[name] for name in topology if topology[name].kind == "spout")
        done = sum(self._rates.values()) - in_
        wave = [1 + 0.2 * ((at * 7) % 10 - 5) / 10 for at in range(points - 1)] + [1.0]
        flat = {"failed_per_sec": 0.02, "waited_ms": 100.0, "p50_ms": 540.0, "p99_ms": 910.0}
        saved = float(sum(each["saved_bytes"] for each in self.stats(None)["components"].values()))
        pending = 1200.0 * sum(
            each.parallelism for each in topology.values() if each.kind == "spout"
        )
        return {
            "times": [now - window_secs * (1 - (at + 1) / points) for at in range(points)],
            "emitted_per_sec": [in_ * one for one in wave],
            "executed_per_sec": [done * one for one in wave],
            "acked_per_sec": [0.99 * in_ * one for one in wave],
            **{name: [value] * points for name, value in flat.items()},
            "batch_ms": [640.0 * one for one in wave],
            "pending": [pending * one for one in wave],
            "held": [0.0] * points,
            "lag_secs": [1.5 * one for one in wave],
            "saved_bytes": [saved * (0.5 + 0.5 * (at + 1) / points) for at in range(points)],
            "batch": [float(at) for at in range(points)],
            "errors_per_sec": [0.1 * (at % 20 == 7) for at in range(points)],
        }


def topology_levels(topology: Topology) -> Iterator[list[str]]:
    """Yield the bolts whose inputs have been yielded, until all have been."""
    known = {name for name, of in topology.components.items() if of.kind == "spout"}
    while known < topology.components.keys():
        level = [
            name
            for name, of in topology.components.items()
            if name not in known and all(read.component in known for read in of.inputs)
        ]
        known |= {*level}
        yield level


def add_busy(world: World, name: str, components: int) -> RunRecord:
    """Add a busy topology, with errors, logs, marks and settings as one has them after an hour."""
    conf = {"topology.max.spout.pending": 2000, "kafka.password": "hunter2"}
    run = world.add(name, topology=shop(components), conf=conf, driver=BusyDriver)
    driver = world.drivers[name]
    assert isinstance(driver, BusyDriver)
    now = time.time()
    file = run.directory / "submission.json"
    submission = json.loads(file.read_text())
    file.write_text(json.dumps(submission | {"submitted_at": now - _BEHIND_SECS}))
    driver.errors_found = [
        error_of(driver.broken, "no price for 'tea'", now - 70, first=now - 3000, count=1204),
        error_of(driver.broken, "could not convert string to float: '12,50'", now - 400, count=3),
    ]
    driver.errors_found[0] |= {"type": "KeyError", "traceback": _TRACEBACK}
    note_mark(run.directory, "restart", "start 2, after: the kernel killed it for want of memory")
    note_mark(run.directory, "rebalance", "rebalance to 2 slots begins")
    for level, text in (
        ("INFO", "opened with 2 partitions"), ("WARNING", "order 7741 has no currency: EUR"),
        ("ERROR", "no price for 'tea'"),
        ("INFO", json.dumps({"order": 7741, "items": ["tea"] * 9})),
    ):  # fmt: skip
        world.log(run, text, level=level)
    return world.registry.reload(run)


_TRACEBACK = """Traceback (most recent call last):
  File "shop.py", line 41, in execute
    price = self.prices[tup["item"]]
            ~~~~~~~~~~~^^^^^^^^^^^^^
KeyError: 'tea'"""
