"""A cluster in one thread, with a clock that only the test moves."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from random import Random
from threading import Event
from types import TracebackType
from typing import Any, Protocol, cast

from topo.config import Config
from topo.engine.base import Launch, Run, engine_named
from topo.errors import RunError
from topo.running import ENDED
from topo.testing.mocks import MockSources, with_mock_sources
from topo.topology.model import Topology
from topo.topology.submission import check_submission


class SteppedRun(Run, Protocol):
    """A run that moves only when the test moves it."""

    @property
    def topology(self) -> Topology: ...
    @property
    def conf(self) -> Config: ...
    @property
    def pending(self) -> int:
        """The number of messages that are neither acked nor failed."""
        ...

    def settle(self, max_steps: int = 100_000) -> None:
        """Run until nothing is left to do at this instant."""
        ...

    def step(self, n: int = 1) -> int:
        """Make `n` calls of next_tuple for each spout task, with what follows."""
        ...

    def next_event(self, until: float) -> float | None:
        """Return when, up to `until`, the next timeout or tick is due."""
        ...

    def restart(self) -> None:
        """Build every instance anew from what was saved, as after a crash of everything."""
        ...

    def rebalance(self, tasks: Mapping[str, int]) -> None:
        """Restart with other numbers of tasks of some bolts: `topo rebalance -e`."""
        ...

    def watermark(self, component: str) -> Any:
        """Return a bolt's watermark in the unit of its time field; None before it has one."""
        ...


class TestCluster:
    """A cluster that runs topologies under simulated time.

    `seed` decides the order in which the tasks of a component run and the sizes of batches: the
    same seed gives the same run.
    """

    __test__ = False  # or pytest would take it for a class of tests

    def __init__(self, seed: int = 0) -> None:
        self._random = Random(seed)
        self._now = 0.0
        self._called = Event()
        self._runs: list[SteppedRun] = []

    @property
    def now(self) -> float:
        """The simulated seconds since the start of the cluster."""
        return self._now

    def submit_topology(
        self,
        name: str,
        topology: Topology,
        conf: Mapping[str, Any] | None = None,
        *,
        active: bool = True,
        mock_sources: MockSources | None = None,
    ) -> SteppedRun:
        """Submit a topology; `mock_sources` replaces spouts as in `complete_topology`."""
        check_submission(name, topology)
        for run in self._runs:
            if run.name == name and run.status not in ENDED:
                raise RunError(f"{name} is running here already", hint="give it another name")
        launch = Launch(
            name,
            with_mock_sources(topology, mock_sources or {}),
            conf or {},
            now=lambda: self._now,
            active=active,
            shuffled=Random(self._random.getrandbits(64)),
            wake=self._called.set,
            advance=self.advance,
        )
        run = cast(SteppedRun, engine_named("simulated").launch(launch))
        for text in run.warnings:
            warnings.warn(text, stacklevel=2)
        self._runs.append(run)
        return run

    def await_calls(self, secs: float = 5) -> bool:
        """Wait, in real time, until threads of components have emitted, acked or failed something.

        `settle` then makes these calls. Return False if there was none for so many seconds.
        """
        has_calls = self._called.wait(secs)
        self._called.clear()
        return has_calls

    def advance(self, secs: float, max_steps: int = 100_000) -> None:
        """Advance time from each tick and timeout to the next, and settle at each.

        Spouts are asked at those moments and at the end; a spout that waits by `context.now()`
        needs several small steps.
        """
        if secs < 0:
            raise ValueError(f"time does not go back: advance(secs={secs})")
        end = self._now + secs
        self._settle_at(self._now, max_steps)
        while (event := self._next_event(end)) is not None:
            self._settle_at(event, max_steps)
        self._settle_at(end, max_steps)

    def _next_event(self, end: float) -> float | None:
        events = [run.next_event(end) for run in self._runs]
        return min((event for event in events if event is not None), default=None)

    def _settle_at(self, time: float, max_steps: int) -> None:
        self._now = max(self._now, time)
        for run in self._runs:
            run.settle(max_steps)

    def __enter__(self) -> TestCluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            with ExitStack() as kills:  # each, though another raises
                for run in reversed(self._runs):
                    kills.callback(run.kill)
        except Exception:
            if error is None:  # else what the test raised is the one to see
                raise
