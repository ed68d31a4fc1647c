"""The topology of `exactly_once` with a loop before what counts, and a process that runs it.

    python -m tests.fault.looping DIRECTORY MASTER

Every tuple goes round some times: for a second or more, in which processes can be killed.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.fault.exactly_once import Count, LogSpout, run_job
from topo import BasicBolt, Topology, TopologyBuilder, Tuple

LAPS = {"micro-batch": 8, "real-time": 150}


class Round(BasicBolt):
    """Sends every tuple round so many times, and then on."""

    outputs = {"default": LogSpout.outputs, "again": (*LogSpout.outputs, "lap")}

    def __init__(self, laps: int) -> None:
        self.laps = laps

    def execute(self, tup: Tuple) -> None:
        lap = tup.lap if "lap" in tup.fields else 0
        values = [tup.key, tup.offset, tup.source, tup.number]
        if lap < self.laps:
            self.emit([*values, lap + 1], stream="again")
        else:
            self.emit(values)


def topology(directory: str, kind: type[Round] = Round) -> Topology:
    conf = json.loads(Path(directory, "conf.json").read_text(encoding="utf-8"))
    laps = LAPS[conf.get("topology.mode", "micro-batch")]
    builder = TopologyBuilder()
    builder.set_spout("log", LogSpout(directory), parallelism=2)
    again = builder.set_bolt("round", kind(laps), parallelism=3)
    again.fields_grouping("log", "key").fields_grouping("round", "key", stream="again", loop=True)
    builder.set_bolt("count", Count(directory), parallelism=3).fields_grouping("round", "key")
    return builder.create_topology()


if __name__ == "__main__":
    run_job(topology)
