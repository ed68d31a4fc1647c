"""Complete runs of finite topologies in tests."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from typing import Any

from topo.engine.base import Launch, engine_named
from topo.errors import RunError
from topo.running import ENDED
from topo.testing.cluster import SteppedRun, TestCluster
from topo.testing.mocks import MockSources, with_mock_sources
from topo.topology.model import Topology
from topo.topology.submission import check_topology

# Every spout promises to end; this only guards against one that never does.
_LONGEST_SECS = 300.0
"""On Spark."""
_MOST_STEPS = 50_000_000

_THREADS_SECS = 5.0
"""How long a thread of the user's may work on pending messages without a word, in real time."""

_PATIENCE = 1000
"""How many simulated seconds, or ticks, spouts may do nothing before the topology stands still."""


class CompletedTopology:
    """The record of a complete run: emitted tuples, acked and failed messages."""

    def __init__(
        self,
        topology: Topology,
        rows: Mapping[tuple[str, str], list[list[Any]]],
        acked: Mapping[str, list[Any]],
        failed: Mapping[str, list[Any]],
    ) -> None:
        self.topology = topology
        self._rows = rows
        spouts = [spout.id for spout in topology.spouts]
        self.acked = {spout: list(acked.get(spout, [])) for spout in spouts}
        self.failed = {spout: list(failed.get(spout, [])) for spout in spouts}

    def __repr__(self) -> str:
        emitted = [
            f"{name}: {len(rows)}" if stream == "default" else f"{name}/{stream}: {len(rows)}"
            for (name, stream), rows in sorted(self._rows.items())
        ]
        acked, failed = (sum(map(len, each.values())) for each in (self.acked, self.failed))
        return (
            f"<CompletedTopology: {acked} acked, {failed} failed; emitted "
            f"{', '.join(emitted) or 'nothing'}>"
        )

    def tuples(self, component: str, stream: str = "default") -> list[list[Any]]:
        """Return the value lists that the component emitted on the stream."""
        self.topology.component(component).declared(stream)
        return list(self._rows.get((component, stream), []))


def complete_topology(
    topology: Topology,
    mock_sources: MockSources | None = None,
    conf: Mapping[str, Any] | None = None,
    engine: str = "inline",
    mode: str | None = None,
) -> CompletedTopology:
    """Run until every spout is exhausted and nothing is in flight.

    Simulated time advances only when nothing is left to do at an instant: while messages are
    pending and threads that components have started are alive, it waits up to 5 s for their calls.
    `mode` is topology.mode of the engine "spark": "micro-batch" or "real-time".
    """
    check_topology(topology, "complete_topology")
    for text in topology.warnings:
        warnings.warn(text, stacklevel=2)
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


def _complete_inline(topology: Topology, conf: Mapping[str, Any] | None) -> CompletedTopology:
    others = set(threading.enumerate())
    with TestCluster() as cluster:
        run = cluster.submit_topology("complete", topology, conf)
        run.settle(_MOST_STEPS)
        times_out = run.conf["topology.enable.message.timeouts"]
        patience = _PATIENCE
        waits = True
        while run.status not in ENDED:
            if waits and run.pending and set(threading.enumerate()) - others:
                waits = cluster.await_calls(_THREADS_SECS)
                run.settle(_MOST_STEPS)
                continue
            event = run.next_event(float("inf"))
            before = _progress(run)
            # Without an event, a spout may still wait for a time that only the spout knows.
            cluster.advance(1 if event is None else event - cluster.now, _MOST_STEPS)
            waits = waits or cluster.await_calls(0)
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
    if run.reason:
        hint = run.reason
    elif run.pending:
        hint = "a bolt keeps tuples without acking them, and message timeouts are off"
    else:
        hint = "a spout neither emits nor says that it is exhausted"
    return RunError(
        f"the topology stands still with {run.pending} messages in flight, "
        f"{_PATIENCE:,} simulated seconds or ticks long",
        hint=hint,
    )
