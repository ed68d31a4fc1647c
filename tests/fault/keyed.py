"""The topology of `exactly_once` with an instance for each key before what counts.

    python -m tests.fault.keyed DIRECTORY MASTER

An instance numbers what it passes on, and tells by a timer how much it has passed: so what is lost
or doubled of an instance's attributes, or of its timers, does not fit with what was counted.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.fault import exactly_once
from tests.fault.exactly_once import Count, LogSpout, run_job, write
from topo import KeyedBolt, StatefulBasicBolt, Topology, TopologyBuilder, Tuple

UNTOLD_SECS = 2.0
LOOK_SECS = 0.2
HELD = "held"
"""A file of the job's directory: as long as it is there, timers that come are set again."""


class Passing(KeyedBolt):
    """Passes a key's tuples on, and tells when its timer comes how many there were since."""

    outputs = {"default": (*LogSpout.outputs, "before"), "told": ("key", "count")}

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def created(self) -> None:
        self.passed = 0
        self.untold = 0

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.key, tup.offset, tup.source, tup.number, self.passed])
        self.passed += 1
        if not self.untold:
            self.set_timer("tell", after=UNTOLD_SECS)
        self.untold += 1

    def on_timer(self, name: str, at: Any) -> None:
        if Path(self.directory, HELD).exists():
            self.set_timer("tell", after=LOOK_SECS)
            return
        self.emit([self.key, self.untold], stream="told")
        self.untold = 0


class CountPassed(Count):
    """Counts, and raises if an instance knows of more or fewer tuples of its key."""

    def execute(self, tup: Tuple) -> None:
        before = self.totals.get(tup.key, 0)
        if tup.before != before:
            raise AssertionError(f"lost: {tup.key!r} has passed {tup.before}, and {before} came")
        super().execute(tup)


class Told(StatefulBasicBolt):
    """Adds up what instances tell."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def execute(self, tup: Tuple) -> None:
        self.state[tup.key] = self.state.get(tup.key, 0) + tup.count

    def cleanup(self) -> None:
        write(self.directory, "told", dict(self.state))


def topology(directory: str) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("log", LogSpout(directory), parallelism=2)
    builder.set_bolt("passing", Passing(directory), parallelism=3).fields_grouping("log", "key")
    count = builder.set_bolt("count", CountPassed(directory), parallelism=3)
    count.fields_grouping("passing", "key")
    builder.set_bolt("told", Told(directory)).global_grouping("passing", stream="told")
    return builder.create_topology()


def check_result(directory: Path) -> dict[str, int]:
    """Compare what was counted with the log, and with what instances told by their timers."""
    figures = exactly_once.check_result(directory, has_windows=False)
    told = json.loads(directory.joinpath("told.json").read_text(encoding="utf-8"))
    totals: Counter[str] = Counter()
    for file in directory.glob("count-*.json"):
        totals.update(json.loads(file.read_text(encoding="utf-8"))["totals"])
    assert told == totals, "each timer has come once"
    return figures


if __name__ == "__main__":
    run_job(topology)
