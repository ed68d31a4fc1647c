"""The names of topo's classes that a checkpoint may hold: a topo that moves one cannot read it.

Most of what operators save is numbers, tuples and dictionaries. These are the exceptions, and what
users keep in their own state: results of windows, records, changes of tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest

from tests.architecture.test_formats import _names_in
from topo import (
    AfterCount,
    Count,
    EventTime,
    Session,
    TopologyBuilder,
    Tumbling,
    Window,
    WindowAggregate,
    WindowedBolt,
)
from topo.streams import Process, StreamBuilder
from topo.testing import FeederSpout, TestCluster

NAMES = {
    "topo.streams.records.make_record",
    "topo.streams.state.OpaqueValue",
    "topo.streams.window_results.Window",
    "topo.streams.window_results.WindowResult",
    "topo.tables.leaving.RowChange",
    "topo.tuples.Source",
    "topo.tuples._restore",
    "topo.windows.holding.Held",
    "topo.windows.records._record",
    "topo.windows.storm.Position",
}
TS = EventTime("ts", idle=None)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_what_a_checkpoint_names_is_still_there(name: str) -> None:
    module, _, thing = name.rpartition(".")
    assert getattr(import_module(module), thing).__module__ == module


class Lengths(WindowedBolt):
    """The number of tuples in each window."""

    outputs = ("n",)

    def execute(self, window: Window) -> None:
        self.emit([len(window.tuples)])


class Latest(Process[Any, Any, Any]):
    """Keeps the latest value of each key."""

    def on_value(self, key: Any, value: Any) -> None:
        self.state["latest"] = value


def _bolt(bolt: Any) -> Callable[[FeederSpout], Any]:
    def build(feeder: FeederSpout) -> Any:
        builder = TopologyBuilder()
        builder.set_spout("s", feeder)
        builder.set_bolt("b", bolt).global_grouping("s")
        return builder.create_topology()

    return build


def _program(write: Callable[[Any], Any]) -> Callable[[FeederSpout], Any]:
    def build(feeder: FeederSpout) -> Any:
        s = StreamBuilder()
        write(s.stream(feeder, time=TS).key_by("k")).process(Latest()).print()
        return s.build()

    return build


def _changes(keyed: Any) -> Any:
    table = keyed.map_values(lambda row: row.v).to_table()
    return table.changes()


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (_bolt(Lengths().with_window(5)), {"topo.windows.storm.Position"}),
        (
            _bolt(Lengths().with_session(timedelta(seconds=1)).with_timestamp_field("ts")),
            {"topo.windows.holding.Held", "topo.windows.records._record"},
        ),
        (
            _bolt(
                WindowAggregate(
                    window=Session(10), aggregates={"n": Count()}, time=TS, trigger=AfterCount(2)
                )
            ),
            {"topo.windows.records._record"},
        ),
        (_program(lambda keyed: keyed), {"topo.streams.records.make_record"}),
        (
            _program(lambda keyed: keyed.window(Tumbling(10)).count().key_by(lambda r: r.key)),
            {"topo.streams.window_results.Window", "topo.streams.window_results.WindowResult"},
        ),
        (_program(_changes), {"topo.tables.leaving.RowChange"}),
    ],
    ids=["storm", "sessions", "triggers", "records", "results", "changes"],
)
def test_state_names_nothing_else_of_topo(
    build: Callable[[FeederSpout], Any], names: set[str]
) -> None:
    feeder = FeederSpout(["k", "v", "ts"])
    with TestCluster() as cluster:
        run: Any = cluster.submit_topology("t", build(feeder))
        for ts in (1, 2, 30, 60):
            feeder.feed(["a", ts, ts])
        run.settle()
        blobs = [blob for saved in run._saved.values() for blob in saved.values()]
    found = {name for blob in blobs for name in _names(blob) if name.startswith("topo.")}
    assert names <= found <= NAMES


def _names(blob: bytes) -> Iterator[str]:
    try:
        yield from _names_in(blob)
    except Exception:  # it is no pickle
        return
