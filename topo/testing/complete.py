"""Complete runs of finite topologies in tests."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from topo.components import Spout
from topo.engine.base import Launch, engine_named
from topo.errors import RunError, TopoError
from topo.running import ENDED
from topo.runtime.emitter import check_values
from topo.shipping.pickling import pickle_locally, pickle_to_travel
from topo.testing.cluster import SteppedRun, TestCluster
from topo.topology.model import ComponentDef, Topology
from topo.topology.submission import check_topology

# Every spout promises to end; this only guards against one that never does.
_LONGEST_SECS = 300.0
"""On Spark."""
_MOST_STEPS = 50_000_000

Items = Iterable[list[Any] | tuple[Any, ...]]
MockSources = Mapping[str, Items | Mapping[str, Items]]


_PATIENCE = 1000
"""How many simulated seconds, or ticks, spouts may do nothing before the topology stands still."""


class MockSpout(Spout):
    """A spout of given items; task k of m emits items k, k+m, ...; the index is the msg id."""

    def __init__(self, items: list[tuple[str, list[Any]]]) -> None:
        self.items = items

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.next: int = context.this_task_index
        self.step = len(context.component_tasks(context.this_component_id))

    def next_tuple(self) -> None:
        if self.next < len(self.items):
            stream, values = self.items[self.next]
            self.emit(values, stream=stream, msg_id=self.next)
            self.next += self.step

    def is_exhausted(self) -> bool:
        return self.next >= len(self.items)


class CompletedTopology:
    """The record of a complete run: emitted tuples, acked and failed messages."""

    def __init__(
        self,
        topology: Topology,
        rows: Mapping[tuple[str, str], list[list[Any]]],
        acked: Mapping[str, list[Any]],
        failed: Mapping[str, list[Any]],
    ) -> None:
        self._topology = topology
        self._rows = rows
        spouts = [spout.id for spout in topology.spouts]
        self.acked = {spout: list(acked.get(spout, [])) for spout in spouts}
        self.failed = {spout: list(failed.get(spout, [])) for spout in spouts}

    def tuples(self, component: str, stream: str = "default") -> list[list[Any]]:
        """Return the value lists that the component emitted on the stream."""
        self._topology.component(component).declared(stream)
        return list(self._rows.get((component, stream), []))


def complete_topology(
    topology: Topology,
    mock_sources: MockSources | None = None,
    conf: Mapping[str, Any] | None = None,
    engine: str = "inline",
    mode: str | None = None,
) -> CompletedTopology:
    """Run until every spout is exhausted and nothing is in flight.

    Simulated time advances only when nothing is left to do at an instant. `mode` is topology.mode
    of the engine "spark": "micro-batch" or "real-time".
    """
    check_topology(topology, "complete_topology")
    mocked = with_mock_sources(topology, mock_sources or {})
    # The inline engine says more about those that only another engine reads for.
    said_there = [spout.id for spout in mocked.spouts if spout.external and engine == "inline"]
    endless = [s.id for s in mocked.spouts if not (s.finite or s.id in said_there)]
    if endless:
        names = ", ".join(map(repr, endless))
        raise RunError(
            f"spout {names} never says that it is exhausted, so the topology does not complete",
            hint="override is_exhausted, or give mock_sources for it",
        )
    if mode is not None:
        conf = {**(conf or {}), "topology.mode": mode}
    if engine == "spark":
        return _complete_on_spark(mocked, conf)
    if engine != "inline":
        raise ValueError(f"engine is 'inline' or 'spark'; got {engine!r}")
    return _complete_inline(mocked, conf)


def with_mock_sources(topology: Topology, mock_sources: MockSources) -> Topology:
    """Return the topology with these spouts replaced by ones that emit the items."""
    components = dict(topology.components)
    for name, items in mock_sources.items():
        spout = topology.component(name)
        if not spout.is_spout:
            raise TopoError(f"mock_sources: {name!r} is a bolt; only spouts are mocked")
        components[name] = _mocked(spout, items)
    return Topology(components.values(), topology.warnings, topology.user_classes)


def _mocked(spout: ComponentDef, items: Any) -> ComponentDef:
    streams = items if isinstance(items, Mapping) else {"default": items}
    flat = []
    for stream, given in streams.items():
        for values in given:
            check_values(values, f"mock_sources: spout {spout.id!r} was given")
            flat.append((stream, list(values)))
    mock = MockSpout(flat)
    return replace(
        spout,
        class_name="MockSpout",
        pickled=pickle_to_travel(mock),
        local=pickle_locally(mock),
        finite=True,
        external={},
    )


def _complete_inline(topology: Topology, conf: Mapping[str, Any] | None) -> CompletedTopology:
    with TestCluster() as cluster:
        run = cluster.submit_topology("complete", topology, conf)
        run.settle(_MOST_STEPS)
        times_out = run.conf["topology.enable.message.timeouts"]
        patience = _PATIENCE
        while run.status not in ENDED:
            event = run.next_event(float("inf"))
            before = _progress(run)
            # Without an event, a spout may still wait for a time that only the spout knows.
            cluster.advance(1 if event is None else event - cluster.now, _MOST_STEPS)
            expires = times_out and run.pending > 0
            patience = _PATIENCE if expires or _progress(run) != before else patience - 1
            if not patience:
                raise _stands_still(run)
        return CompletedTopology(topology, run.rows, run.acked, run.failed)


def _complete_on_spark(topology: Topology, conf: Mapping[str, Any] | None) -> CompletedTopology:
    launch = Launch(
        "complete", topology, conf or {}, capture=tuple(topology.components), conclusions=True
    )
    run = engine_named("spark").launch(launch)
    for text in run.warnings:
        warnings.warn(text, stacklevel=3)
    run.start()
    try:
        run.await_completion(_LONGEST_SECS)
    finally:
        run.kill()
    return CompletedTopology(topology, run.rows, run.acked, run.failed)


def _progress(run: SteppedRun) -> int:
    """Return a count of the spouts' emits and verdicts; ticks alone are no progress."""
    figures = run.stats().components
    spouts = [figures[spout.id] for spout in run.topology.spouts]
    return sum(spout.emitted + spout.acked + spout.failed for spout in spouts)


def _stands_still(run: SteppedRun) -> RunError:
    if run.pending:
        hint = "a bolt keeps tuples without acking them, and message timeouts are off"
    else:
        hint = "a spout neither emits nor says that it is exhausted"
    return RunError(
        f"the topology stands still with {run.pending} messages in flight, "
        f"{_PATIENCE:,} simulated seconds or ticks long",
        hint=hint,
    )
