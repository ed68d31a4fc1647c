"""The topology that notices what is lost or doubled, of bolts that can have other numbers of tasks.

    python -m tests.fault.dealt DIRECTORY MASTER

What `Count` keeps is by key here: keyed state under keys with the input's in them, and a keyed
attribute. Windows are dealt by their key; what holds tuples, and spouts, keep their tasks.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.fault.exactly_once import Count, Hold, LogSpout, RawWindows, Windows, run_job, write
from topo import Count as CountOf
from topo import EventTime, Topology, TopologyBuilder, Tumbling, Tuple, WindowAggregate


class Chains(Count):
    """Counts, in keyed state whose keys have the input's as their last part."""

    keyed = ("totals",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        super().prepare(conf, context, collector)
        self.counted_now: list[Any] = []

    def input_key(self, key: Any) -> Any:
        return key if isinstance(key, str) else key[-1]  # of `totals`, and of the state

    def execute(self, tup: Tuple) -> None:
        chain = ("chain", tup.source, tup.key)
        before = self.state.get(chain, 0)
        if tup.number != before + 1:
            what = "lost" if tup.number > before + 1 else "doubled"
            raise AssertionError(f"{what}: {tup.key!r} {before} and then {tup.number}")
        self.state[chain] = tup.number
        self.totals[tup.key] = self.totals.get(tup.key, 0) + 1
        self.counted_now.append(("at", tup.offset, tup.key))

    def cleanup(self) -> None:
        chains = {f"{k[1]} {k[2]}": n for k, n in self.state.items() if k[0] == "chain"}
        counted = {k[1]: batch for k, batch in self.state.items() if k[0] == "at"}
        known = {"totals": self.totals, "chains": chains, "counted": counted}
        write(self.directory, f"count-{self.context.this_task_id}", known)


def topology(directory: str) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("log", LogSpout(directory), parallelism=2)
    builder.set_bolt("hold", Hold(), parallelism=3).fields_grouping("log", "key")
    builder.set_bolt("count", Chains(directory), parallelism=3).fields_grouping("hold", "key")
    time = EventTime("offset", unit="us", idle=None)
    panes = WindowAggregate(key="key", window=Tumbling(20), time=time, aggregates={"n": CountOf()})
    builder.set_bolt("panes", panes, parallelism=2).fields_grouping("log", "key")
    raw = RawWindows().with_tumbling_window(timedelta(microseconds=30)).with_key("key")
    raw.with_event_time(time)
    builder.set_bolt("raw", raw, parallelism=2).fields_grouping("log", "key")
    windows = builder.set_bolt("windows", Windows(directory))
    windows.global_grouping("panes").global_grouping("raw")
    return builder.create_topology()


if __name__ == "__main__":
    run_job(topology)
