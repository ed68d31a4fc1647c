"""Runs topologies on Spark for the suites, and follows them batch by batch."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.processes import cpu_seconds
from topo.cluster import LocalCluster
from topo.engine.base import Run
from topo.errors import RunError
from topo.running import ENDED
from topo.topology.model import Topology

_LOOK_SECS = 0.02
_START_SECS = 120.0
_DRAIN_SECS = 30.0


@dataclass(frozen=True)
class Batch:
    """A batch that has committed: its own time, when it was heard of, and what was done by then."""

    id: int
    ms: float
    heard_at: float
    executed: int


@dataclass
class BatchSeries:
    """Some consecutive batches of a run."""

    batches: list[Batch] = field(default_factory=list)
    cpu_secs: float | None = None

    @property
    def executed_per_sec(self) -> float:
        """The component's executed tuples per second, over whole batches."""
        first, last = self.batches[0], self.batches[-1]
        return (last.executed - first.executed) / (last.heard_at - first.heard_at)

    @property
    def ms(self) -> list[float]:
        return [batch.ms for batch in self.batches[1:]]

    @property
    def p50(self) -> float:
        return statistics.median(self.ms)

    @property
    def p99(self) -> float:
        ordered = sorted(self.ms)
        return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]


@contextmanager
def running(topology: Topology, conf: Mapping[str, Any], master: str = "local[*]") -> Iterator[Run]:
    """The topology, once its first batch has committed; it is ended in good order."""
    with LocalCluster(master) as cluster:
        run = cluster.submit_topology("bench", topology, conf)
        for _ in _batches(run, "", time.monotonic() + _START_SECS):
            break
        else:
            raise RunError(f"no batch has committed in {_START_SECS:g} s", hint=run.reason)
        yield run


def follow(run: Run, component: str, secs: float, least: int = 3) -> BatchSeries:
    """Its next batches for so long, and what `component` executes; at least so many batches."""
    found = BatchSeries()
    until = time.monotonic() + secs
    before = cpu_seconds()
    for batch in _batches(run, component, until + _START_SECS):
        found.batches.append(batch)
        if time.monotonic() >= until and len(found.batches) > least:
            break
    after = cpu_seconds()
    if before is not None and after is not None:
        found.cpu_secs = sum(after.values()) - sum(before.values())
    return found


def end(run: Run, spout: str) -> None:
    """Let what is in flight finish, and end the run in good order."""
    run.deactivate()
    until = time.monotonic() + _DRAIN_SECS
    while run.stats().components[spout].pending and time.monotonic() < until:
        time.sleep(_LOOK_SECS)
    run.kill()


def _batches(run: Run, component: str, until: float) -> Iterator[Batch]:
    """Batches as they are heard of; the first is one that began after the call."""
    known = run.stats().batch.id if component else -1
    while time.monotonic() < until:
        if run.status in ENDED:
            run.raise_error()
            raise RunError(f"the measured run is {run.status}", hint=run.reason)
        stats = run.stats()
        if stats.batch.id > known and stats.batch.ms:
            known = stats.batch.id
            executed = stats.components[component].executed if component else 0
            yield Batch(known, stats.batch.ms, time.monotonic(), executed)
        time.sleep(_LOOK_SECS)
